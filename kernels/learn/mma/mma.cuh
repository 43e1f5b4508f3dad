// mma.cuh -- Products of bfloat16 matrices in shared memory, accumulated in float32. They use `mma` on tensor cores (sm_80 and
// newer), and plain loops on a CPU, for tests.
//
// Source of the fragment layouts: PTX ISA, "Matrix fragments for mma.m16n8k16" and "ldmatrix". In a 16 x 8 accumulator, lane l of a
// warp has rows l / 4 and l / 4 + 8 of columns 2 (l % 4) and the next. All sizes are multiples of 16. Rows are padded by SKEW
// entries to avoid bank conflicts. Sync before reading the results of an epilogue.
#pragma once
#include "learn/mma/bfloat.cuh"
#include "learn/mma/warps.cuh"

constexpr int SKEW = 8;

typedef u32 Word MAY_ALIAS;  // two entries
// A matrix in memory with COLUMNS entries in each row.
template <int COLUMNS> struct Matrix {
  static constexpr int STRIDE = COLUMNS + SKEW;
  bf16* at;

  DEVICE bf16* row(int m) const { return at + m * STRIDE; }
  // Entries n and n + 1 of row m, for even n.
  DEVICE Word& two(int m, int n) const { return *(Word*)(row(m) + n); }
};

#ifdef __CUDACC__
// Load four 8 x 8 blocks of a matrix. Each lane passes the address of 16 bytes, a row of one of them.
template <bool TRANSPOSED> DEVICE void ldmatrix(u32 (&to)[4], const bf16* row) {
  const u32 address = (u32)__cvta_generic_to_shared(row);
  if constexpr (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(address) : "memory");
  }
}
// Load the 16 x 16 block at (m, k) as A fragment. If TRANSPOSED, load the block at (k, m) transposed.
template <bool TRANSPOSED, int COLUMNS> DEVICE void load_a(u32 (&to)[4], const Matrix<COLUMNS> a, const int m, const int k) {
  const int lane = threadIdx.x % WARP_SIZE, block = lane / 8, row = lane % 8;
  if constexpr (TRANSPOSED) ldmatrix<true>(to, a.row(k + block / 2 * 8 + row) + m + block % 2 * 8);
  else ldmatrix<false>(to, a.row(m + block % 2 * 8 + row) + k + block / 2 * 8);
}
// Load the 16 x 16 block at (k, n) as two B fragments. If TRANSPOSED, load the block at (n, k) transposed. Words 0 and 1 are the
// fragment of its first 8 columns.
template <bool TRANSPOSED, int COLUMNS> DEVICE void load_b(u32 (&to)[4], const Matrix<COLUMNS> b, const int n, const int k) {
  const int lane = threadIdx.x % WARP_SIZE, block = lane / 8, row = lane % 8;
  if constexpr (TRANSPOSED) ldmatrix<false>(to, b.row(n + block / 2 * 8 + row) + k + block % 2 * 8);
  else ldmatrix<true>(to, b.row(k + block % 2 * 8 + row) + n + block / 2 * 8);
}
// sum (16 x 8) = a (16 x 16) times b (16 x 8).
DEVICE void mma_zero(float (&sum)[4], const u32 (&a)[4], const u32 b0, const u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
      : "=f"(sum[0]), "=f"(sum[1]), "=f"(sum[2]), "=f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}
// sum (16 x 8) += a (16 x 16) times b (16 x 8).
DEVICE void mma_add(float (&sum)[4], const u32 (&a)[4], const u32 b0, const u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Multiply two matrices. The epilogue finish(m, n, c, d) is called for all m in [0, M) and even n in [0, N). c is the sum over k in
// [0, K) of a(m, k) b(n, k), or of a(m, k) b(k, n) if not TRANSPOSED, and d is that of column n + 1.
template <int M, int N, int K, bool TRANSPOSED, int A, int B, class Finish>
DEVICE void product(const Team team, const Matrix<A> a, const Matrix<B> b, Finish finish) {
  constexpr int ROW_WARPS = WARPS < M / 16 ? WARPS : M / 16, COLUMN_WARPS = WARPS / ROW_WARPS;
  constexpr int TALL = M / 16 / ROW_WARPS, DEPTH = K / 16;  // 16 x 16 blocks of one warp
  constexpr bool KEPT = TALL * DEPTH <= 8;                  // A fragments stay in registers
  const int warp = team.rank / WARP_SIZE, lane = team.rank % WARP_SIZE, g = lane / 4, t = lane % 4;
  const int first = warp % ROW_WARPS * TALL * 16;
  u32 left[KEPT ? DEPTH : 1][TALL][4];
  if constexpr (KEPT) {
    UNROLL for (int k = 0; k < DEPTH; ++k) {
      UNROLL for (int i = 0; i < TALL; ++i) load_a<false>(left[k][i], a, first + 16 * i, 16 * k);
    }
  }
  // Each round computes 16 columns per warp.
  constexpr int ROUNDS = (N / 16 + COLUMN_WARPS - 1) / COLUMN_WARPS;
  NO_UNROLL for (int round = 0; round < ROUNDS; ++round) {
    const int n = (round * COLUMN_WARPS + warp / ROW_WARPS) * 16;
    if (N / 16 % COLUMN_WARPS != 0 && n >= N) break;
    float sum[TALL][2][4];
    UNROLL_TIMES(DEPTH <= 8 ? DEPTH : 2) for (int k = 0; k < DEPTH; ++k) {
      u32 right[4];
      load_b<TRANSPOSED>(right, b, n, 16 * k);
      if constexpr (!KEPT) {
        UNROLL for (int i = 0; i < TALL; ++i) load_a<false>(left[0][i], a, first + 16 * i, 16 * k);
      }
      UNROLL for (int i = 0; i < TALL; ++i) {
        UNROLL for (int half = 0; half < 2; ++half) {
          if (k == 0) mma_zero(sum[i][half], left[0][i], right[2 * half], right[2 * half + 1]);
          else mma_add(sum[i][half], left[KEPT ? k : 0][i], right[2 * half], right[2 * half + 1]);
        }
      }
    }
    // Epilogue.
    UNROLL for (int i = 0; i < TALL; ++i) {
      UNROLL for (int half = 0; half < 2; ++half) {
        const float(&c)[4] = sum[i][half];
        finish(first + 16 * i + g, n + 8 * half + 2 * t, c[0], c[1]);
        finish(first + 16 * i + g + 8, n + 8 * half + 2 * t, c[2], c[3]);
      }
    }
  }
}

// An M x N accumulator in the registers of a team, and the sums of the A operand's M columns. `Split` maps warps to TALL x WIDE of
// the 16 x 16 blocks, and to the strips of 16 rows whose column sums they compute.
template <int M, int N, class Split> struct Accumulator : Split {
  float of[Split::TALL][Split::WIDE][2][4], columns[Split::STRIPS][4];

  DEVICE void clear() {
    UNROLL for (int e = 0; e < 4; ++e) {
      UNROLL for (int i = 0; i < Split::TALL; ++i) {
        UNROLL for (int j = 0; j < Split::WIDE; ++j) of[i][j][0][e] = of[i][j][1][e] = 0.0f;
      }
      UNROLL for (int i = 0; i < Split::STRIPS; ++i) columns[i][e] = 0.0f;
    }
  }
  // Call visit(m, n, c, d) for all m and even n, with the sums at (m, n) and (m, n + 1).
  template <class Visit> DEVICE void each(const Team team, Visit visit) const {
    const int warp = team.rank / WARP_SIZE, lane = team.rank % WARP_SIZE;
    UNROLL for (int i = 0; i < Split::TALL; ++i) {
      UNROLL for (int j = 0; j < Split::WIDE; ++j) {
        const int m = Split::row(warp, i, j), n = Split::column(warp, i, j);
        if (!Split::EVEN && (m >= M || n >= N)) continue;
        UNROLL for (int half = 0; half < 2; ++half) {
          const float(&c)[4] = of[i][j][half];
          visit(m + lane / 4, n + 8 * half + lane % 4 * 2, c[0], c[1]);
          visit(m + lane / 4 + 8, n + 8 * half + lane % 4 * 2, c[2], c[3]);
        }
      }
    }
  }
  // Call visit(m, sum of column m of the A operands).
  template <class Visit> DEVICE void each_column(const Team team, Visit visit) const {
    const int warp = team.rank / WARP_SIZE, lane = team.rank % WARP_SIZE;
    if (!Split::has_strips(warp) || lane % 4 != 0) return;
    UNROLL for (int i = 0; i < Split::STRIPS; ++i) {
      const int m = Split::strip(warp, i);
      if (!Split::EVEN_STRIPS && m >= M) continue;
      visit(m + lane / 4, columns[i][0]);
      visit(m + lane / 4 + 8, columns[i][2]);
    }
  }
};

// Adjacent blocks in one warp, and strips dealt to warps in turn. SHARING teams share an accumulator. A thread's rank among the
// threads of all of them is its rank in its team, plus TEAM for each team before its own.
template <int M, int N, int SHARING> struct LinearSplit {
  static constexpr int ALL_WARPS = WARPS * SHARING;
  static constexpr int BLOCKS = M / 16 * (N / 16), TALL = 1, WIDE = (BLOCKS + ALL_WARPS - 1) / ALL_WARPS;
  static constexpr int STRIPS = (M / 16 + ALL_WARPS - 1) / ALL_WARPS;
  static constexpr bool EVEN = BLOCKS % ALL_WARPS == 0, EVEN_STRIPS = M / 16 % ALL_WARPS == 0;
  static DEVICE int row(int warp, int, int j) { return (warp * WIDE + j) / (N / 16) * 16; }
  static DEVICE int column(int warp, int, int j) { return (warp * WIDE + j) % (N / 16) * 16; }
  static DEVICE int strip(int warp, int i) { return (i * ALL_WARPS + warp) * 16; }
  static DEVICE bool has_strips(int) { return true; }
};
template <int M, int N, int SHARING = 1> struct LinearAccumulator : Accumulator<M, N, LinearSplit<M, N, SHARING>> {
  typedef LinearSplit<M, N, SHARING> Split;
  // Add the sum over k in [0, K) of a(k, m) b(k, n).
  template <int K> DEVICE void add(const Team team, const Matrix<M> a, const Matrix<N> b) {
    const int warp = team.rank / WARP_SIZE;
    const u32 ones = team.rank % WARP_SIZE / 4 == 0 ? 0x3f803f80u : 0u;  // a B fragment whose first column is 1
    NO_UNROLL for (int k = 0; k < K; k += 16) {
      u32 left[4], right[4];
      UNROLL for (int j = 0; j < Split::WIDE; ++j) {
        const int block = warp * Split::WIDE + j, m = block / (N / 16) * 16, n = block % (N / 16) * 16;
        if (!Split::EVEN && block >= Split::BLOCKS) break;
        if (j == 0 || n == 0) load_a<true>(left, a, m, k);
        load_b<false>(right, b, n, k);
        mma_add(this->of[0][j][0], left, right[0], right[1]);
        mma_add(this->of[0][j][1], left, right[2], right[3]);
      }
      UNROLL for (int i = 0; i < Split::STRIPS; ++i) {
        const int m = Split::strip(warp, i);
        if (!Split::EVEN_STRIPS && m >= M) break;
        load_a<true>(left, a, m, k);
        mma_add(this->columns[i], left, ones, ones);
      }
    }
  }
};

#else
DEVICE float wide(bf16 x) { return math::from_bits((u32)x.bits << 16); }
// Entry of an operand.
template <int COLUMNS> DEVICE float entry_at(const Matrix<COLUMNS> a, const int m, const int n) { return wide(a.row(m)[n]); }

// Add row m of a product.
template <int N, int K, bool TRANSPOSED, int A, int B>
DEVICE void add_row(float (&sum)[N], const int m, const Matrix<A> a, const Matrix<B> b) {
  for (int k = 0; k < K; ++k) {
    for (int n = 0; n < N; ++n) sum[n] += wide(a.row(m)[k]) * wide(TRANSPOSED ? b.row(n)[k] : b.row(k)[n]);
  }
}
template <int M, int N, int K, bool TRANSPOSED, int A, int B, class Finish>
DEVICE void product(const Team team, const Matrix<A> a, const Matrix<B> b, Finish finish) {
  for (int m = 0; m < M; ++m) {
    float sum[N] = {};
    add_row<N, K, TRANSPOSED>(sum, m, a, b);
    for (int i : team.each(N / 2)) finish(m, 2 * i, sum[2 * i], sum[2 * i + 1]);  // threads need each other's results
  }
}
template <int M, int N, int SHARING = 1> struct LinearAccumulator {
  static constexpr int ALL_THREADS = TEAM * SHARING, OWN = (M + ALL_THREADS - 1) / ALL_THREADS;  // rows of one thread
  float of[OWN][N], columns[OWN];

  DEVICE void clear() { *this = {}; }
  template <int K, class Right> DEVICE void add(const Team team, const Matrix<M> a, const Right b) {
    for (int k = 0; k < K; ++k) {
      for (int m = team.rank; m < M; m += ALL_THREADS) {
        const float left = wide(a.row(k)[m]);
        columns[m / ALL_THREADS] += left;
        for (int n = 0; n < N; ++n) of[m / ALL_THREADS][n] += left * entry_at(b, k, n);
      }
    }
  }
  template <class Visit> DEVICE void each(const Team team, Visit visit) const {
    for (int m = team.rank; m < M; m += ALL_THREADS) {
      for (int n = 0; n < N; n += 2) visit(m, n, of[m / ALL_THREADS][n], of[m / ALL_THREADS][n + 1]);
    }
  }
  template <class Visit> DEVICE void each_column(const Team team, Visit visit) const {
    for (int m = team.rank; m < M; m += ALL_THREADS) visit(m, columns[m / ALL_THREADS]);
  }
};
#endif
