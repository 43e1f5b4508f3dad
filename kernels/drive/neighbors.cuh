// neighbors.cuh -- Find the K nearest neighbors of each of A points of the plane: exactly, sorted by (squared distance, id).
//
//   struct Shared { Neighbors<A, K> near; };
//   struct Cache { NeighborCache<A> near; };
//   near.place(team, x, y, here, length);  team.sync();   // points with here[i] == 0 are left out of the search
//   near.each(env, speed, [&](const auto& found) { ... found.i, found.id[k] ... });
//
// `each` calls back once for every i of [0, A), so that its row of observations can be written (rows.cuh). All threads of a warp
// call back equally often. If a thread has no row left, `found.mine` is false. length: most points are in [0, length) in both
// directions. speed: maximum move of a point until the next search. These two, and the cache, affect only the speed.
#pragma once
#include "drive/nearest.cuh"
#include "drive/rows.cuh"

constexpr float FAR = 1e30f;      // larger than any squared distance of two points
constexpr float NOWHERE = 1e18f;  // coordinate of absent points: its squared distance from any point exceeds FAR

// For each point a search radius that is likely to contain K others: the distance of its K-th neighbor in the last search, plus the
// largest change of that distance since then. 0: unknown. It affects only the speed of a search, not its result.
template <int A> struct NeighborCache {
  float reach[A];

  template <class Found> DEVICE void remember(const Found& found, const float drift) {
    reach[found.i] = found.all() ? math::sqrt(found.furthest) + drift : 0.0f;  // mutant(constant): any hint finds the same
  }
};

// The K neighbors of i, as ids in [0, A), nearest first. If fewer than K other points are present, the remaining ids are i.
template <int K> struct Found {
  const int i;
  const bool mine;  // whether this thread writes i's row
  const bool out;   // i is absent, and so are all agents whose rows are stored together with i's
  int id[side(K)];
  float furthest;  // squared distance of id[K - 1], 0 if that is i

  DEVICE Found(const Team team, int i, bool mine, bool here) : i(i), mine(mine), out(!rows_any(team, mine && here)) { nobody(); }
  DEVICE void nobody() {
    for (int k = 0; k < side(K); ++k) id[k] = i;
    furthest = 0.0f;
  }
  DEVICE bool all() const { return id[K - 1] != i; }
  DEVICE void take(const Nearest<float, K>& nearest) {
    for (int k = 0; k < K; ++k) id[k] = nearest.id[k] >= 0 ? nearest.id[k] : i;
    furthest = all() ? nearest.distance[K - 1] : 0.0f;
  }
  // If the order of the words is certain, take the neighbors from `list`, and return true. p: place of i in the list.
  template <int IDS, class List> DEVICE bool take(const NearestWords<float, K, IDS>& words, const List& list, int p) {
    typedef NearestWords<float, K, IDS> Words;
    if (!words.sure()) return false;
    for (int k = 0; k < K; ++k) id[k] = list.id[Words::id(words.word[k])];
    furthest = list.distance(p, Words::id(words.word[K - 1]));
    return true;
  }
};

// Brute-force search of few points: each point against all, in the order of ids.
template <int A, int K> struct Few {
  Array<float, A> x, y;  // NOWHERE for absent points

  template <class Places, class Here>
  DEVICE void place(const Team team, const Places& at_x, const Places& at_y, const Here& here, float) {
    for (int i : team.each(A)) {
      x[i] = here[i] ? at_x[i] : NOWHERE;
      y[i] = here[i] ? at_y[i] : NOWHERE;
    }
  }

  template <class Visit> DEVICE void search(const Team team, NeighborCache<A>&, float, Visit visit) const {
    NO_UNROLL for (int i : team.all(A)) {
      const bool mine = i < A;
      const float at_x = x[mine ? i : 0], at_y = y[mine ? i : 0];
      const bool here = mine && at_x != NOWHERE;
      Found<K> found(team, mine ? i : 0, mine, here);
      Nearest<float, K> nearest(FAR);
      if (here) {
        UNROLL for (int j = 0; j < A; ++j) {
          const float dx = x[j] - at_x, dy = y[j] - at_y;
          nearest.insert_next(j == i ? FAR : dx * dx + dy * dy, j);
        }
      }
      found.take(nearest);
      visit(found);
    }
  }
};

// List of A points in search order, present points first. A place is an index of this list. `Search` derives from it (CRTP), and
// has look(found, p, hint), which finds the neighbors of place p.
template <int A, int K, int PLACES, class Search> struct List {
  alignas(16) float x[PLACES];
  alignas(16) float y[PLACES];
  int id[A];
  int count;  // number of present points

  DEVICE float distance(int p, int q) const {
    const float dx = x[q] - x[p], dy = y[q] - y[p];
    return dx * dx + dy * dy;
  }
  template <class Visit> DEVICE void search(const Team team, NeighborCache<A>& cache, const float drift, Visit visit) const {
    for (int p : team.all(A)) {
      Found<K> found(team, p < A ? id[p] : 0, p < A, p < count);  // mutant(constant): that row is never written
      if (p < count) ((const Search&)*this).look(found, p, cache.reach[found.i]);
      visit(found);
      if (p < A) cache.remember(found, drift);
    }
  }
};

// Search all pairs of present points, in the order of ids.
constexpr int SCAN = 32;  // number of places that are compared before candidates are inserted: one bit each of a u32
constexpr int scanned(int n) { return (n + SCAN - 1) / SCAN * SCAN; }  // mutant(swap /): more room, never read
template <int A, int K> struct AllPairs : List<A, K, scanned(A), AllPairs<A, K>> {
  typedef List<A, K, scanned(A), AllPairs<A, K>> Here;
  using Here::x, Here::y, Here::id, Here::count, Here::distance;  // x and y: NOWHERE for absent points, and for padding

  template <class Places, class Here>
  DEVICE void place(const Team team, const Places& at_x, const Places& at_y, const Here& here, float) {
    constexpr int SHARE = (A + TEAM - 1) / TEAM;  // of each thread
    const int first = math::min(team.rank * SHARE, A), last = math::min(first + SHARE, A);
    // Count the present points of this thread. Its places follow those of lower ranks, for present and for absent points.
    int mine = 0, all;
    for (int i = first; i < last; ++i) mine += here[i] != 0;
    int at = team.before(mine, &all), after = all + first - at;
    for (int i = first; i < last; ++i) {
      const int p = here[i] ? at++ : after++;
      x[p] = here[i] ? at_x[i] : NOWHERE;
      y[p] = here[i] ? at_y[i] : NOWHERE;
      id[p] = i;
    }
    for (int p : team.each(scanned(A) - A)) x[A + p] = y[A + p] = NOWHERE;
    if (team.leader()) count = all;
  }

  // Call call(distance, q) for the places q of a scan whose squared distance from p is less than `bound`. All are compared before
  // the first call, so that the lanes of a warp diverge less.
  template <class Call> DEVICE void scan(int p, int base, float bound, Call call) const {
    u32 near = 0;
    UNROLL for (int b = 0; b < SCAN; ++b) near |= (u32)(distance(p, base + b) < bound) << b;
    if (p >= base && p < base + SCAN) near &= ~(1u << (p - base));  // mutant(swap -): this processor shifts modulo 32
    for (; near != 0; near &= near - 1) {
      const int q = base + lowest_bit(near);
      call(distance(p, q), q);
    }
  }

  // Search within the cached radius by words. Returns false if this is ambiguous, or finds fewer than K.
  DEVICE bool quick(Found<K>& found, int p, float reach) const {
    typedef NearestWords<float, K, A> Words;
    if (!(reach > 0.0f)) return false;  // mutant(dropped condition, swap >): may take the slow way
    Words words;
    words.clear(reach * reach);
    for (int base = 0; base < count; base += SCAN) {
      // mutant(swap *): fewer than K are never sure
      scan(p, base, reach * reach, [&](float d, int q) { words.insert(words.of(d, (u32)q)); });
    }
    return found.take(words, *this, p);
  }

  // Search exactly.
  DEVICE void thorough(Found<K>& found, int p) const {
    Nearest<float, K> nearest(FAR);
    for (int base = 0; base < count; base += SCAN) {
      scan(p, base, nearest.distance[K - 1], [&](float d, int q) { nearest.insert_next(d, id[q]); });
    }
    found.take(nearest);
  }
  DEVICE void look(Found<K>& found, int p, float hint) const {
    if (!quick(found, p, hint)) thorough(found, p);
  }

#if !defined(__CUDACC__) && !defined(TEAM_THREADS) && !defined(DEBUG_BOUNDS) && !defined(COUNT_OPERATIONS)
  // On a CPU, SIDE_FLOATS points are searched at once, one in each lane of a vector. Each candidate is inserted in all lanes.
  template <class Visit> DEVICE void search(const Team team, NeighborCache<A>& cache, const float drift, Visit visit) const {
    typedef NearestWords<floats, K, A> Words;
    for (int base = 0; base < count; base += SIDE_FLOATS) {
      // Load the points of the vector's lanes.
      const int last = math::min(base + SIDE_FLOATS, count);
      floats at_x, at_y, bound;
      for (int l = 0; l < SIDE_FLOATS; ++l) {
        const int p = base + l < last ? base + l : base;
        at_x[l] = x[p];
        at_y[l] = y[p];
        bound[l] = cache.reach[id[p]] * cache.reach[id[p]];
      }
      // Insert every other point in all lanes.
      Words words;
      words.clear(bound);
      const auto word = [&](int q) {
        const floats dx = x[q] - at_x, dy = y[q] - at_y;
        return words.of(dx * dx + dy * dy, (u32)q);
      };
      for (int q = 0; q < base; ++q) words.insert(word(q));
      for (int q = base; q < last; ++q) {
        floats added = word(q);
        added[q - base] = Words::NOBODY;  // a point is not its own neighbor
        words.insert(added);
      }
      for (int q = last; q < count; ++q) words.insert(word(q));
      // Take the neighbors of each lane, or search exactly if its words are ambiguous.
      for (int p = base; p < last; ++p) {
        Found<K> found(team, id[p], true, true);
        NearestWords<float, K, A> own;
        for (int k = 0; k <= K; ++k) own.word[k] = words.word[k][p - base];
        if (!found.take(own, *this, p)) thorough(found, p);  // mutant(dropped condition): more work, same result
        visit(found);
        cache.remember(found, drift);
      }
    }
    // Absent points have no neighbors.
    for (int p = count; p < A; ++p) {
      const Found<K> found(team, id[p], true, false);
      visit(found);
      cache.remember(found, drift);
    }
  }
#endif
};

// Search in the cells of a grid. The points of a cell are contiguous in the list, and so are the cells of a row. The order of
// points within a cell is arbitrary, and no result depends on it. Cells are narrow, because searching several cells of a row costs
// no more than searching one.
template <int A, int K> struct Cells : List<A, K, A, Cells<A, K>> {
  typedef List<A, K, A, Cells<A, K>> Here;
  using Here::x, Here::y, Here::id, Here::count, Here::distance;
  static constexpr int root(float n) { int r = 1; while ((float)((r + 1) * (r + 1)) <= n) ++r; return r; }
  static constexpr int WIDE = 3;  // number of cells whose total width is the height of a row
  // mutant(swap >): equal where they meet
  static constexpr float PER_SQUARE = 0.36f * K > 2.0f ? 0.36f * K : 2.0f;  // average number of points in WIDE cells
  static constexpr int MOST_ROWS = root((float)A / PER_SQUARE);
  static constexpr int CELLS = WIDE * MOST_ROWS * MOST_ROWS + 1;  // the last one has the points that are not here
  typedef NearestWords<float, K, A> Words;
  Array<int, CELLS> end;  // of each cell: one after its last place
  int rows;
  float scale;  // rows per length

  DEVICE float across(float at) const { return at * ((float)WIDE * scale); }  // in columns
  DEVICE float down(float at) const { return at * scale; }                    // in rows
  DEVICE int column(float at) const { return math::clamp(math::to_int(across(at)), 0, WIDE * rows - 1); }
  DEVICE int row(float at) const { return math::clamp(math::to_int(down(at)), 0, rows - 1); }
  DEVICE int cell(float at_x, float at_y, int here) const {
    return here ? row(at_y) * (WIDE * rows) + column(at_x) : CELLS - 1;
  }

  template <class Places, class Here>
  DEVICE void place(const Team team, const Places& at_x, const Places& at_y, const Here& here, float length) {
    // Choose the grid by the number of points.
    int mine = 0, all;
    for (int i : team.each(A)) mine += here[i] != 0;
    all = team.sum(mine);
    for (int c : team.each(CELLS)) end[c] = 0;
    if (team.leader()) {
      count = all;
      // mutant(swap /): any number of rows finds the same
      rows = math::clamp(math::to_int(math::sqrt((float)all / PER_SQUARE)), 1, MOST_ROWS);
      scale = (float)rows / length;
    }
    team.sync();  // cells are cleared, and the grid is set, before points are counted
    for (int i : team.each(A)) team.add(end, cell(at_x[i], at_y[i], here[i]), 1);
    team.sync();  // all points are counted before counts are summed
    // Replace counts by the cells' first places.
    constexpr int SHARE = (CELLS + TEAM - 1) / TEAM;  // of each member
    const int first = team.rank * SHARE, last = math::min(first + SHARE, CELLS);
    mine = 0;
    for (int c = first; c < last; ++c) mine += end[c];
    int begin = team.before(mine, &all);
    for (int c = first; c < last; ++c) {
      const int size = end[c];
      end[c] = begin;
      begin += size;
    }
    team.sync();  // first places are written before points are placed
    for (int i : team.each(A)) {  // each cell's `end` moves from its beginning to its end
      const int at = team.add(end, cell(at_x[i], at_y[i], here[i]), 1);
      x[at] = at_x[i];
      y[at] = at_y[i];
      id[at] = i;
    }
  }

  // First place of a row's cells from column `first` on.
  DEVICE int begin(int row, int first) const {
    const int from = row * (WIDE * rows) + first;
    return from == 0 ? 0 : end[from - 1];
  }
  // One after the last place of a row's cells up to column `last`.
  DEVICE int stop(int row, int last) const { return end[row * (WIDE * rows) + last]; }
  // Call call(q) for the places of cells [first, last] of a row.
  template <class Call> DEVICE void scan(int row, int first, int last, Call call) const {
    const int after = stop(row, last);
    for (int q = begin(row, first); q < after; ++q) call(q);
  }

  // The places of three rows of cells as one sequence, for one loop. With three loops, a warp would wait for its slowest lane three
  // times.
  struct Places {
    int count;             // length of the sequence
    int second, third;     // index of the first element of the second and the third row
    int first_of[3];       // offset of each row: element n of the sequence is place n + first_of[row]
    DEVICE int operator[](int n) const { return n + (n < second ? first_of[0] : n < third ? first_of[1] : first_of[2]); }
  };
  DEVICE Places places(int top, int bottom, int left, int right) const {
    Places found{};
    UNROLL for (int k = 0; k < 3; ++k) {
      if (k == 1) found.second = found.count;
      if (k == 2) found.third = found.count;
      if (top + k > bottom) continue;
      const int from = begin(top + k, left);
      found.first_of[k] = from - found.count;
      found.count += stop(top + k, right) - from;
    }
    return found;
  }

  // Search a block of cells around p, and larger ones while they hold too few points. Then search all cells up to the distance of
  // the last neighbor found. If the words are ambiguous, search all of these again, exactly. A correct hint other than 0 makes
  // ambiguity less likely. Returns whether the neighbors were found.
  DEVICE bool look_near(Found<K>& found, int p, float hint) const {
    const float u = across(x[p]), v = down(y[p]);
    const int columns = WIDE * rows, column_of_p = column(x[p]), row_of_p = row(y[p]);
    Words words;
    int left, right, top, bottom;
    for (int h = 1;; h *= 2) {
      int looked_at = 0;
      left = math::max(column_of_p - WIDE * h, 0);
      right = math::min(column_of_p + WIDE * h, columns - 1);
      top = math::max(row_of_p - h, 0);
      bottom = math::min(row_of_p + h, rows - 1);
      const float side = (float)(h + 1) / scale;
      // mutant(dropped statement, swap * 2, swap * 5, swap math::min): may take the slow way
      words.clear(hint > 0.0f ? math::min(hint * hint, 2.0f * side * side) : 2.0f * side * side);
      for (int row = top; row <= bottom; row += 3) {
        // mutant(swap +, swap row +): may take the slow way
        const Places near = places(row, math::min(row + 2, bottom), left, right);
        for (int n = 0; n < near.count; ++n) {
          const int q = near[n];
          words.insert(words.of(distance(p, q) + (q == p ? FAR : 0.0f), (u32)q));  // a branch would delay the next load
        }
        looked_at += near.count;  // mutant(swap +=): may take the slow way
      }
      if (looked_at > K) break;  // itself and K others
      // mutant(swap && 3): may take the slow way
      if (left == 0 && right == columns - 1 && top == 0 && bottom == rows - 1) return false;
    }
    // Extend the search to the distance of the K-th candidate.
    // mutant(dropped condition): may take the slow way
    if (words.far()) return false;  // the hint is wrong, or p is far outside the square
    // Words whose distances are rounded to the same number may be in any order. The K-th neighbor may therefore be further than
    // the K-th word by the width of that rounding. A thousandth of a cell covers the rounding errors below.
    const float reach = math::sqrt(distance(p, Words::id(words.word[K - 1])) + words.part());
    const float aside = across(reach) + 0.001f, along = down(reach) + 0.001f;
    const int most_left = math::clamp(math::to_int(u - aside), 0, left);
    const int most_right = math::clamp(math::to_int(u + aside), right, columns - 1);
    const int most_top = math::clamp(math::to_int(v - along), 0, top);
    const int most_bottom = math::clamp(math::to_int(v + along), bottom, rows - 1);
    const auto insert = [&](int q) { words.insert(words.of(distance(p, q), (u32)q)); };
    for (int row = most_top; row <= most_bottom; ++row) {
      const bool seen = row >= top && row <= bottom;  // cells [left, right] of this row are already searched
      // Cells left and right of these. Not unrolled, so that the insertions are compiled into the kernel once.
      NO_UNROLL for (int half = 0; half < 2; ++half) {
        const int first = half == 0 ? most_left : seen ? right + 1 : most_right + 1;
        const int last = half == 0 && seen ? left - 1 : most_right;
        if (first <= last) scan(row, first, last, insert);
      }
    }
    if (!found.take(words, *this, p)) look_exactly(found, p, most_left, most_right, most_top, most_bottom);
    return true;
  }

  DEVICE void look_exactly(Found<K>& found, int p, int left, int right, int top, int bottom) const {
    Nearest<float, K> nearest(FAR);
    for (int row = top; row <= bottom; ++row) {
      scan(row, left, right, [&](int q) {
        const float d = distance(p, q);
        if (q != p && d <= nearest.distance[K - 1]) nearest.insert(d, id[q]);
      });
    }
    found.take(nearest);
  }

  DEVICE void look(Found<K>& found, int p, float hint) const {
    while (!look_near(found, p, hint)) {
      if (hint == 0.0f) return look_exactly(found, p, 0, WIDE * rows - 1, 0, rows - 1);
      hint = 0.0f;
    }
  }
};

template <int A, int K> using Search =
    // mutant(swap >): speed only
    typename Choose<(A > 256), Cells<A, K>, typename Choose<(A > 8), AllPairs<A, K>, Few<A, K>>::type>::type;
template <int A, int K> struct Neighbors : Search<A, K> {
  template <class Env, class Visit> DEVICE void each(Env& env, const float speed, Visit visit) const {
    // mutant(swap *, constant): may take the slow way
    this->search(env.team, env.cache.near, 2.001f * speed, visit);  // for two points, and rounding
  }
};
