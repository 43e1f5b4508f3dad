// wgmma.cuh -- Products of bfloat16 matrices by a warpgroup, 128 threads with 64 rows, accumulated in float32. They use `wgmma`
// (sm_90a), and plain loops on a CPU, for tests.
//
// Source of the layouts: PTX ISA, "Asynchronous warpgroup level matrix instructions". In a 64 x N accumulator, lane l of warp w has
// rows 16 w + l / 4 and 8 more, of columns 8 j + 2 (l % 4) and the next. The accumulator fragment of a layer is therefore the A
// fragment of the next. B, and both operands of sums over rows, are in shared memory. Call fence_async_proxy and sync after writing
// them.
#pragma once
#define ARCHITECTURE_SPECIFIC 1
#include "learn/mma/bfloat.cuh"
#include "learn/mma/warps.cuh"

constexpr int GROUP_ROWS = 64;

// Row length of a matrix with `n` columns, including padding.
constexpr int wide(int n) { return n <= 16 ? 16 : n <= 32 ? 32 : 64; }

// A matrix with COLUMNS (16, 32 or 64) columns in shared memory, aligned to 1,024 bytes. XOR-swizzled: 16-byte chunks are permuted
// within 8 rows to avoid bank conflicts.
template <int COLUMNS> struct SwizzledTile {
  bf16* at;

  DEVICE bf16* entry(int m, int n) const {
    const u32 byte = 2 * (m * COLUMNS + n);
    return (bf16*)((char*)at + (byte ^ (byte >> 3 & (COLUMNS / 8 - 1) << 4)));
  }
  // Entries n and n + 1 of row m, for even n.
  DEVICE u32& two(int m, int n) const { return *(u32*)entry(m, n); }
  DEVICE void put(int m, int n, float x) const { entry(m, n)->bits = (u16)pair(x, 0.0f); }
};

// Sums over rows of K columns, as partial sums of each thread.
template <int K> struct ColumnSums;
template <> struct ColumnSums<0> {
  DEVICE void clear() {}
};

#ifdef __CUDACC__
// Matrix descriptor of wgmma for a matrix that begins at entry (m, n): address, bytes of eight rows, offset of the columns after
// the tile's (`beside`, in 16 bytes), swizzle mode. Folds to a constant if the address is known.
template <int COLUMNS>
DEVICE u64 smem_descriptor(const SwizzledTile<COLUMNS> panel, const int m, const int n, const u32 beside = (u32)COLUMNS) {
  constexpr u32 PLACES = COLUMNS == 64 ? 1 : COLUMNS == 32 ? 2 : 3;
  const u32 address = (u32)__cvta_generic_to_shared(panel.at) >> 4;
  return (u64)(PLACES << 30 | COLUMNS) << 32 | (address + (u32)((m * COLUMNS + n) / 8) + (beside << 16));
}

// a b, and 1 - a a, for two numbers in one word each, rounded once.
DEVICE u32 times(const u32 a, const u32 b) {
  u32 product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}
DEVICE u32 one_minus_square(const u32 a) {
  u32 rest;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(rest) : "r"(a ^ 0x80008000u), "r"(a), "r"(0x3f803f80u));
  return rest;
}

DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Wait until at most the LATER most recent groups are pending.
template <int LATER = 0> DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LATER) : "memory");
}
// Make this thread's writes to shared memory visible to the products of all threads after the next sync.
DEVICE void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define SUMS_4(i) "+f"(s[i]), "+f"(s[i + 1]), "+f"(s[i + 2]), "+f"(s[i + 3])
#define SUMS_8(i) SUMS_4(i), SUMS_4(i + 4)
#define SUMS_16(i) SUMS_8(i), SUMS_8(i + 8)
#define SUMS_32(i) SUMS_16(i), SUMS_16(i + 16)
#define SUMS_36(i) SUMS_32(i), SUMS_4(i + 32)
#define NAMES_4 "%0, %1, %2, %3"
#define NAMES_8 NAMES_4 ", %4, %5, %6, %7"
#define NAMES_16 NAMES_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define NAMES_32 NAMES_16 ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define NAMES_36 NAMES_32 ", %32, %33, %34, %35"

// Accumulators (64 x N, COUNT of each lane) of products of depth 16, with the A operand in registers or, transposed, in memory.
template <int N> struct Wgmma;
#define INSTRUCTION(N, COUNT, A, B, C, D, E, F, G)                                                                              \
  template <> struct Wgmma<N> {                                                                                           \
    template <bool BY_ROWS, bool ADD> DEVICE static void run(float (&s)[COUNT], const u32 (&a)[4], const u64 b) {               \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " F ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {"         \
                   NAMES_##COUNT "}, {" A ", " B ", " C ", " D "}, " E ", p, 1, 1, " G ";}"                                     \
                   : SUMS_##COUNT(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"((int)ADD), "n"((int)BY_ROWS));   \
    }                                                                                                                           \
    DEVICE static void run_over_rows(float (&s)[COUNT], const u64 a, const u64 b) {                                             \
      asm volatile("{.reg .pred p; setp.ne.b32 p, " C ", 0; wgmma.mma_async.sync.aligned.m64n" #N "k16.f32.bf16.bf16 {"         \
                   NAMES_##COUNT "}, " A ", " B ", p, 1, 1, 1, 1;}" : SUMS_##COUNT(0) : "l"(a), "l"(b), "n"(1));               \
    }                                                                                                                           \
  };
INSTRUCTION(16, 8, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
INSTRUCTION(32, 16, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
INSTRUCTION(64, 32, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
INSTRUCTION(72, 36, "%36", "%37", "%38", "%39", "%40", "%41", "%42")

// A fragments of 64 rows of K numbers.
template <int K> struct Fragment {
  u32 of[K / 16][4];

  // Address of the 16 bytes that this lane passes for the 16 x 16 block at column k.
  DEVICE u32 row_address(const Team team, const SwizzledTile<K> panel, const int k) const {
    const int lane = team.rank % WARP_SIZE, block = lane / 8;
    const bf16* const at = panel.entry(team.rank / WARP_SIZE * 16 + block % 2 * 8 + lane % 8, k + block / 2 * 8);
    return (u32)__cvta_generic_to_shared(at);
  }
  DEVICE void load(const Team team, const SwizzledTile<K> panel) {
    UNROLL for (int i = 0; i < K / 16; ++i) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(of[i][0]), "=r"(of[i][1]), "=r"(of[i][2]),
                     "=r"(of[i][3])
                   : "r"(row_address(team, panel, 16 * i)) : "memory");
    }
  }
  DEVICE void store(const Team team, const SwizzledTile<K> panel) const {
    UNROLL for (int i = 0; i < K / 16; ++i) {
      asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                   :: "r"(row_address(team, panel, 16 * i)), "r"(of[i][0]), "r"(of[i][1]), "r"(of[i][2]), "r"(of[i][3]) : "memory");
    }
  }
};

// A 64 x N accumulator in the registers of the team.
template <int N> struct Accumulator {
  float of[N / 2];

  // Set each row to `row` (N).
  DEVICE void fill(const Team team, const float* row) {
    UNROLL for (int j = 0; j < N / 8; ++j) {
      const float2 two = *(const float2*)(row + 8 * j + team.rank % 4 * 2);
      of[4 * j] = of[4 * j + 2] = two.x;
      of[4 * j + 1] = of[4 * j + 3] = two.y;
    }
  }
  // Add `row` (N) to each row.
  DEVICE void add(const Team team, const float* row) {
    UNROLL for (int j = 0; j < N / 8; ++j) {
      const float2 two = *(const float2*)(row + 8 * j + team.rank % 4 * 2);
      of[4 * j] += two.x;
      of[4 * j + 2] += two.x;
      of[4 * j + 1] += two.y;
      of[4 * j + 3] += two.y;
    }
  }
  DEVICE void clear() {
    UNROLL for (int j = 0; j < N / 2; ++j) of[j] = 0.0f;
  }
  // Start adding left times right, or writing it if not ADD. If BY_ROWS, right is (K, N), otherwise (N, K).
  template <bool BY_ROWS, bool ADD, int K, int C> DEVICE void multiply(const Fragment<K>& left, const SwizzledTile<C> right) {
    wgmma_fence();
    UNROLL for (int i = 0; i < K / 16; ++i) {
      const u64 b = smem_descriptor(right, BY_ROWS ? 16 * i : 0, BY_ROWS ? 0 : 16 * i);
      if (i == 0) Wgmma<N>::template run<BY_ROWS, ADD>(of, left.of[i], b);
      else Wgmma<N>::template run<BY_ROWS, true>(of, left.of[i], b);
    }
    wgmma_commit();
  }
  // Start adding left(k, m) times right(k, n) over 64 rows k. ones: 16 rows of eight columns beside the right operand, after it in
  // memory, or null.
  template <int A, int B>
  DEVICE void add_over_rows(const SwizzledTile<A> left, const SwizzledTile<B> right, const bf16* ones = nullptr) {
    UNROLL for (int k = 0; k < GROUP_ROWS; k += 16) {
      const u32 beside = ones == nullptr ? B : (u32)((char*)ones - (char*)right.at) / 16 - (u32)k * 8;
      Wgmma<N>::run_over_rows(of, smem_descriptor(left, k, 0), smem_descriptor(right, k, 0, beside));
    }
  }
  // Call visit(m, n, c, d) for the elements c at (m, n) and d at (m, n + 1) of this thread, for even n. COLUMNS is rounded up to a
  // multiple of 8, so visit() ignores n >= COLUMNS. own_pairs: number of calls.
  static constexpr int own_pairs(const int columns) { return (columns + 7) / 8 * 2; }
  template <int COLUMNS = N, class Visit> DEVICE void each(const Team team, Visit visit) const {
    const int m = team.rank / WARP_SIZE * 16 + team.rank % WARP_SIZE / 4, n = team.rank % 4 * 2;
    UNROLL for (int j = 0; j < (COLUMNS + 7) / 8; ++j) {
      visit(m, n + 8 * j, of[4 * j], of[4 * j + 1]);
      visit(m + 8, n + 8 * j, of[4 * j + 2], of[4 * j + 3]);
    }
  }
};
template <int K> struct ColumnSums {
  float of[K / 4];

  DEVICE void clear() {
    UNROLL for (int j = 0; j < K / 4; ++j) of[j] = 0.0f;
  }
  DEVICE void add(const Fragment<K>& rows) {
    UNROLL for (int i = 0; i < K / 16; ++i) {
      UNROLL for (int j = 0; j < 4; ++j) {
        of[4 * i + j / 2 * 2] += first_of(rows.of[i][j]);
        of[4 * i + j / 2 * 2 + 1] += second_of(rows.of[i][j]);
      }
    }
  }
  // Call visit(n, sum) once for each column. memory: 4 K floats that are not in use.
  template <class Visit> DEVICE void each(const Team team, float* memory, Visit visit) const {
    const int warp = team.rank / WARP_SIZE, lane = team.rank % WARP_SIZE;
    UNROLL for (int j = 0; j < K / 4; ++j) {
      float sum = of[j];
      for (int offset = 4; offset < WARP_SIZE; offset *= 2) sum += __shfl_xor_sync(ALL_LANES_OF_WARP, sum, offset);
      if (lane < 4) memory[warp * K + j / 2 * 8 + lane * 2 + j % 2] = sum;
    }
    team.sync();  // the warps' sums are written before they are read
    for (int n : team.each(K)) visit(n, (memory[n] + memory[K + n]) + (memory[2 * K + n] + memory[3 * K + n]));
  }
};
// Replace each pair `of` by change(c, d, of), with the sums c and d at the same place.
template <int N, class Change> DEVICE void transform_pairs(Fragment<N>& factors, const Accumulator<N>& sums, Change change) {
  UNROLL for (int i = 0; i < N / 16; ++i) {
    UNROLL for (int j = 0; j < 4; ++j) {
      const float* const two = sums.of + 8 * i + 2 * j;
      factors.of[i][j] = change(two[0], two[1], factors.of[i][j]);
    }
  }
}
constexpr int WARP_ROWS = 16;
#else
DEVICE u32 times(const u32 a, const u32 b) { return pair(first_of(a) * first_of(b), second_of(a) * second_of(b)); }
DEVICE u32 one_minus_square(const u32 a) {
  return pair(math::fma(-first_of(a), first_of(a), 1.0f), math::fma(-second_of(a), second_of(a), 1.0f));
}
// A thread has all rows of fragments and accumulators. Only its own WARP_ROWS are valid, and it loads and stores these.
static_assert(GROUP_ROWS % TEAM == 0, "members have equally many rows");
constexpr int WARP_ROWS = GROUP_ROWS / TEAM;
DEVICE void wgmma_fence() {}
DEVICE void wgmma_commit() {}
template <int LATER = 0> DEVICE void wgmma_wait() {}
DEVICE void fence_async_proxy() {}

template <int K> struct Fragment {
  u32 of[GROUP_ROWS][K / 2];

  DEVICE void load(const Team team, const SwizzledTile<K> panel) {
    *this = {};
    for (int m = team.rank * WARP_ROWS; m < (team.rank + 1) * WARP_ROWS; ++m) {
      for (int k = 0; k < K; k += 2) of[m][k / 2] = panel.two(m, k);
    }
  }
  DEVICE void store(const Team team, const SwizzledTile<K> panel) const {
    for (int m = team.rank * WARP_ROWS; m < (team.rank + 1) * WARP_ROWS; ++m) {
      for (int k = 0; k < K; k += 2) panel.two(m, k) = of[m][k / 2];
    }
  }
  DEVICE float at(const int m, const int k) const { return k % 2 == 0 ? first_of(of[m][k / 2]) : second_of(of[m][k / 2]); }
};
template <int COLUMNS> DEVICE float number(const SwizzledTile<COLUMNS> panel, const int m, const int n) {
  return math::from_bits((u32)panel.entry(m, n)->bits << 16);
}

template <int N> struct Accumulator {
  float of[64][N];

  // The functions below correspond to those on a GPU.
  DEVICE void fill(const Team, const float* row) {
    for (int m = 0; m < 64; ++m) {
      for (int n = 0; n < N; ++n) of[m][n] = row[n];
    }
  }
  DEVICE void add(const Team, const float* row) {
    for (int m = 0; m < 64; ++m) {
      for (int n = 0; n < N; ++n) of[m][n] += row[n];
    }
  }
  DEVICE void clear() { *this = {}; }
  template <bool BY_ROWS, bool ADD, int K, int C> DEVICE void multiply(const Fragment<K>& left, const SwizzledTile<C> right) {
    if (!ADD) clear();
    for (int m = 0; m < 64; ++m) {
      for (int k = 0; k < K; ++k) {
        const float a = left.at(m, k);
        for (int n = 0; n < N; ++n) of[m][n] += a * (BY_ROWS ? number(right, k, n) : number(right, n, k));
      }
    }
  }
  template <int A, int B>
  DEVICE void add_over_rows(const SwizzledTile<A> left, const SwizzledTile<B> right, const bf16* = nullptr) {
    for (int k = 0; k < GROUP_ROWS; ++k) {
      for (int m = 0; m < 64; ++m) {
        for (int n = 0; n < N; ++n) of[m][n] += number(left, k, m) * (n < B ? number(right, k, n) : 1.0f);
      }
    }
  }
  static constexpr int own_pairs(const int columns) { return WARP_ROWS * ((columns + 1) / 2); }
  template <int COLUMNS = N, class Visit> DEVICE void each(const Team team, Visit visit) const {
    for (int m = team.rank * WARP_ROWS; m < (team.rank + 1) * WARP_ROWS; ++m) {
      for (int n = 0; n < COLUMNS; n += 2) visit(m, n, of[m][n], of[m][n + 1]);
    }
  }
};
template <int K> struct ColumnSums {
  float of[K];

  DEVICE void clear() { *this = {}; }
  DEVICE void add(const Fragment<K>& rows) {
    for (int m = 0; m < GROUP_ROWS; ++m) {
      for (int k = 0; k < K; ++k) of[k] += rows.at(m, k);
    }
  }
  template <class Visit> DEVICE void each(const Team team, float* memory, Visit visit) const {
    for (int n = 0; n < K; ++n) memory[team.rank * K + n] = of[n];
    team.sync();  // the threads' sums are written before they are read
    for (int n : team.each(K)) {
      float sum = memory[n];
      for (int member = 1; member < TEAM; ++member) sum += memory[member * K + n];
      visit(n, sum);
    }
  }
};
template <int N, class Change> DEVICE void transform_pairs(Fragment<N>& factors, const Accumulator<N>& sums, Change change) {
  for (int m = 0; m < GROUP_ROWS; ++m) {
    for (int n = 0; n < N; n += 2) factors.of[m][n / 2] = change(sums.of[m][n], sums.of[m][n + 1], factors.of[m][n / 2]);
  }
}
#endif
