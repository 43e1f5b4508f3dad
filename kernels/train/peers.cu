// peers.cu -- adds or joins a tensor of several processes of one machine, each of which writes into memory of all others.
//
// Every rank has a mailbox, which the others write to and it alone reads: two slots of MAILS mails. A mail is 8 bytes, which
// are written and read at once: 4 bytes of a tensor, and above them the number of the exchange that they belong to. Whoever
// finds the number has the bytes, so that nothing waits for anything else to be seen first: no fence, no flag, no barrier of
// blocks; and no grid has to be that of another rank. (NCCL's protocol LL works like that.)
//
// Two slots, taken in turn, are enough. In each exchange a rank reads at least one mail of every other rank, and all that were
// written to it. So when a rank begins exchange k + 2, it has a mail of k + 1 of every other rank, which has therefore ended k:
// nobody reads the slot any more, and nothing is on its way to it.
//
// The number lies in device memory and grows with each exchange, so that a captured graph replays. It comes back after 2^32 - 2
// exchanges, days of them: a mail of that age that no exchange has overwritten since, and that just this one reads, would be
// taken for new.
//
// A rank that waits gives up when the host says so or its time is over. From then on nothing is exchanged, tensors hold
// anything, and `told` says it to the host.
//
// Constants: RANKS, MAILS.
#include "drive/platform.cuh"
#ifdef __CUDACC__
#include "drive/backend/cuda_shared_words.cuh"
#else
#include "drive/backend/cpu_shared_words.cuh"
#endif

constexpr u32 FIRST_NUMBER = 2;  // after the last one: 0 is that of a new mailbox, and slots take turns
constexpr u32 POLLS = 1024;  // between looks at clock and host
constexpr int AHEAD = RANKS < 8 ? 8 / RANKS : 1;  // entries of one thread whose mails are looked for at once

struct Workspace {};
struct State {
  u32 number;    // of the exchange that comes next
  u32 finished;  // blocks that have done their share of it
  u32 lost;      // 1 once a wait has been given up
};
// What host and device tell each other, in memory of the host.
struct Told {
  u32 stop;  // by the host: wait no more
  u32 lost;  // by the device: a wait has been given up
};
struct Peers {
  int rank;
  int size;              // n, entries of the tensor (add) or words of 4 bytes (join)
  int share;             // entries of one block
  int blocks;            // ceil(n / share)
  int inner;             // join: words of one index along the dimension that ranks share
  int length;            // join: how many indices there are
  int begin[RANKS + 1];  // join: rank r has indices [begin[r], begin[r + 1]), at least one
  i64 limit;             // of one wait, ns
  State* state;
  Told* told;
  u64* mailbox[RANKS];   // (2, MAILS) of each rank, as this process knows its address
  void* values;          // (n)
};

// The slot of an exchange in a rank's mailbox.
DEVICE u64* slot_of(const Peers& call, const int rank, const u32 number) {
  return call.mailbox[rank] + (size_type)(number & 1u) * MAILS;
}

DEVICE u64 sealed(const u32 word, const u32 number) { return (u64)number << 32 | word; }

// Whether to wait no more; `since` is when this was first asked, 0 before.
DEVICE bool gives_up(const Peers& call, i64* since) {
  if (load_relaxed(&call.state->lost) != 0) return true;
  const i64 now = nanoseconds();
  if (*since == 0) *since = now;
  if (load_relaxed(&call.told->stop) == 0 && now - *since < call.limit) return false;
  store_relaxed(&call.state->lost, 1u);
  store_relaxed(&call.told->lost, 1u);
  return true;
}

// The word of a mail of this exchange, of which `mail` was read last: waits for it. Anything, if that is given up.
DEVICE u32 opened(const Peers& call, const u64* from, u64 mail, const u32 number) {
  i64 since = 0;
  for (u32 polls = 1; (u32)(mail >> 32) != number; ++polls) {
    if (polls % POLLS == 0) {
      if (gives_up(call, &since)) break;
      rest();
    }
    mail = load_relaxed(from);
  }
  return (u32)mail;
}

// Ends a block's share; the last block of all ends the exchange.
DEVICE void finish(const Peers& call, const Team team, const u32 number) {
  team.sync();  // all members have read the number
  if (team.rank != 0 || count_up(&call.state->finished) != (u32)call.blocks) return;
  call.state->finished = 0;
  call.state->number = number == 0xffffffffu ? FIRST_NUMBER : number + 1u;
}

// ---- sums ----

// An entry as words, each of which travels as a mail.
template <class T> struct Words {
  static constexpr int COUNT = sizeof(T) / 4;
  u32 of[COUNT];
};
template <class T> DEVICE Words<T> words_of(const T value) {
  Words<T> words;
  memcpy(&words, &value, sizeof(T));
  return words;
}
template <class T> DEVICE T value_of(const Words<T>& words) {
  T value;
  memcpy(&value, &words, sizeof(T));
  return value;
}

// Mails of rank r have places [r * n * COUNT, (r + 1) * n * COUNT) of a slot.
template <class T> DEVICE void post(const Peers& call, const u32 number, const int i, const T value) {
  const Words<T> words = words_of(value);
  UNROLL for (int r = 0; r < RANKS; ++r) {
    if (r == call.rank) continue;
    u64* const to = slot_of(call, r, number) + ((size_type)call.rank * call.size + i) * Words<T>::COUNT;
    UNROLL for (int w = 0; w < Words<T>::COUNT; ++w) store_relaxed(to + w, sealed(words.of[w], number));
  }
}

// Adds what all ranks have of AHEAD entries i, i + TEAM, ... below `end`, in the order of the ranks.
template <class T> DEVICE void collect(const Peers& call, const u32 number, const int i, const int end) {
  constexpr int COUNT = Words<T>::COUNT;
  T* const values = (T*)call.values;
  const u64* const slot = slot_of(call, call.rank, number);
  u64 mail[AHEAD][RANKS][COUNT];
  const auto place = [&](const int k, const int r) INLINED { return slot + ((size_type)r * call.size + i + k * TEAM) * COUNT; };
  UNROLL for (int k = 0; k < AHEAD; ++k) {
    UNROLL for (int r = 0; r < RANKS; ++r) {
      if (r == call.rank || i + k * TEAM >= end) continue;
      UNROLL for (int w = 0; w < COUNT; ++w) mail[k][r][w] = load_relaxed(place(k, r) + w);
    }
  }
  UNROLL for (int k = 0; k < AHEAD; ++k) {
    if (i + k * TEAM >= end) break;
    const T own = values[i + k * TEAM];
    T sum = own;
    UNROLL for (int r = 0; r < RANKS; ++r) {
      T value = own;
      if (r != call.rank) {
        Words<T> words;
        UNROLL for (int w = 0; w < COUNT; ++w) words.of[w] = opened(call, place(k, r) + w, mail[k][r][w], number);
        value = value_of<T>(words);
      }
      sum = r == 0 ? value : sum + value;
    }
    values[i + k * TEAM] = sum;
  }
}

// values (n) T: those of all ranks added, in the order of the ranks. T: float, double, u32, u64.
template <class T> DEVICE void add(const Peers& call, const Team team, const int e) {
  if (load_relaxed(&call.state->lost) != 0) return;
  const u32 number = call.state->number;
  const int begin = e * call.share, end = call.size - begin < call.share ? call.size : begin + call.share;
  for (int i : team.each(end - begin)) post(call, number, begin + i, ((const T*)call.values)[begin + i]);
  for (int i = begin + team.rank; i < end; i += AHEAD * TEAM) collect<T>(call, number, i, end);
  finish(call, team, number);
}

// ---- joins ----

DEVICE int owner(const Peers& call, const int i) {
  const int index = i / call.inner % call.length;
  int r = 0;
  while (index >= call.begin[r + 1]) ++r;
  return r;
}

// values (n) u32: the mail of word i has place i, whoever owns it.
DEVICE void join_words(const Peers& call, const Team team, const int e) {
  if (load_relaxed(&call.state->lost) != 0) return;
  const u32 number = call.state->number;
  u32* const values = (u32*)call.values;
  const u64* const slot = slot_of(call, call.rank, number);
  const int begin = e * call.share, end = call.size - begin < call.share ? call.size : begin + call.share;
  for (int k : team.each(end - begin)) {
    const int i = begin + k;
    if (owner(call, i) != call.rank) continue;
    const u64 mail = sealed(values[i], number);
    UNROLL for (int r = 0; r < RANKS; ++r) {
      if (r != call.rank) store_relaxed(slot_of(call, r, number) + i, mail);
    }
  }
  for (int first = begin + team.rank; first < end; first += AHEAD * TEAM) {
    u64 mail[AHEAD];
    UNROLL for (int k = 0; k < AHEAD; ++k) {
      if (first + k * TEAM < end) mail[k] = load_relaxed(slot + first + k * TEAM);
    }
    UNROLL for (int k = 0; k < AHEAD; ++k) {
      const int i = first + k * TEAM;
      if (i < end && owner(call, i) != call.rank) values[i] = opened(call, slot + i, mail[k], number);
    }
  }
  finish(call, team, number);
}

#include "drive/launch.cuh"
KERNEL(add_floats, Peers, call.blocks, add<float>(call, team, e))
KERNEL(add_doubles, Peers, call.blocks, add<double>(call, team, e))
KERNEL(add_ints, Peers, call.blocks, add<u32>(call, team, e))
KERNEL(add_longs, Peers, call.blocks, add<u64>(call, team, e))
KERNEL(join, Peers, call.blocks, join_words(call, team, e))
