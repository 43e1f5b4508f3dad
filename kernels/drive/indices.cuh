// indices.cuh -- Distribution of indices over the threads of a team, and arrays that one thread may keep in registers.
#pragma once

// Indices of [0, n) that belong to one thread: rank, rank + TEAM, ... For a range-based for.
struct Each {
  int first, last;
  struct Index {
    int i;
    DEVICE int operator*() const { return i; }
    DEVICE void operator++() { i += TEAM; }
    DEVICE bool operator!=(const Index& end) const { return i < end.i; }
  };
  DEVICE Index begin() const { return {first}; }
  DEVICE Index end() const { return {last}; }
};

// The same, where `i` is the thread's k-th index. For a constant n the compiler knows the number of iterations, and unrolls a few
// of them. Only the last one tests whether its index exists. The threads of a warp therefore do not wait for each other, and
// computations for the agents of one thread overlap.
constexpr int own_count(const int n) { return (n + TEAM - 1) / TEAM; }
#define FOR_OWN(team, k, i, n)                         \
  UNROLL_OWN for (int k = 0; k < own_count(n); ++k)  /* mutant(swap <): one more iteration, without effect */ \
    if (const int i = (team).rank + k * TEAM; i < (n))


// Type of an array's index. A debug build knows where the index was written (faults.cuh).
#ifdef DEBUG_BOUNDS
struct Index {
  i64 i; const char* file; int line;
  // From any integer, or a value that converts to one, such as an element of another array.
  template <class I>
  Index(I&& i, const char* file = __builtin_FILE(), int line = __builtin_LINE()) : i((i64)(I&&)i), file(file), line(line) {}
  int within(i64 size, const char* what) const;
};
#define INDEXED(index, size) (index).within(size, "array element")
#define TABLE_INDEX(index, size) (index).within(size, Name::text())
#else
typedef int Index;
#define INDEXED(index, size) (index)
#define TABLE_INDEX(index, size) (index)
#endif

// N values, such as one per agent, that are indexed like any array. One thread may keep them in registers, which have no dynamic
// index: a runtime index becomes a chain of selects over all of them. An element `s.x[i]` of a mutable array is therefore not
// a float but an Element, which converts to one where it is used: write `const float x = s.x[i]`. `float& x = s.x[i]` does not
// compile. Neither does reading x after `auto x = s.x[i]`, which would see later writes to the array.
constexpr int MOST_SELECTED = 8;
template <class T, int N> struct Array {
  static constexpr bool SELECTED = REGISTERS_HAVE_NO_INDEX && TEAM == 1 && N <= MOST_SELECTED;
  T of[N];

  DEVICE T get(int i) const {
    if constexpr (!SELECTED) return of[i];
    T selected = of[0];
    UNROLL for (int k = 1; k < N; ++k) selected = k == i ? of[k] : selected;  // mutant(swap <): no index is N
    return selected;
  }
  DEVICE T set(int i, T value) {
    if constexpr (!SELECTED) of[i] = value;
    else UNROLL for (int k = 0; k < N; ++k) of[k] = k == i ? value : of[k];
    return value;
  }
  struct Element {
    Array& array;
    int i;
    DEVICE operator T() const && { return array.get(i); }
    DEVICE T operator=(T value) const && { return array.set(i, value); }
    DEVICE T operator=(const Element& other) const && { return array.set(i, other.array.get(other.i)); }
    DEVICE T operator+=(T value) const && { return array.set(i, array.get(i) + value); }
    DEVICE T operator-=(T value) const && { return array.set(i, array.get(i) - value); }
    DEVICE T operator*=(T value) const && { return array.set(i, array.get(i) * value); }
  };
  DEVICE T operator[](Index i) const { return get(INDEXED(i, N)); }
  DEVICE Element operator[](Index i) { return {*this, INDEXED(i, N)}; }
};

template <bool FIRST, class A, class B> struct Choose { typedef A type; };
template <class A, class B> struct Choose<false, A, B> { typedef B type; };

// Name a type if one of the given types is a float, a double, or an Element of them. A function of integers would silently drop the
// fraction.
template <class T> T&& a_value();
template <class T> struct Fractions { enum : bool { ANY = false }; };
template <> struct Fractions<float> { enum : bool { ANY = true }; };
template <> struct Fractions<double> { enum : bool { ANY = true }; };
template <bool> struct Refused {};
template <> struct Refused<true> { typedef int type; };
template <class... Ts> using IfFractions = typename Refused<(Fractions<decltype(a_value<Ts>() + 0)>::ANY || ...)>::type;

// Common part of all kinds of Team.
struct Member {
  int rank;  // [0, TEAM)

  // Deleted for floats: a sum of floats depends on the order of the threads.
  template <class T> IfFractions<T> sum(T) const = delete;
  float min(float) const = delete;
  double min(double) const = delete;
  template <class T> IfFractions<T> before(T, int*) const = delete;
  template <int N, class T> IfFractions<T> add(Array<int, N>&, int, T) const = delete;
  template <int N, class T> int add(Array<float, N>&, int, T) const = delete;

  DEVICE Each each(int n) const { return {rank, n}; }
  // Like each(n), but with n rounded up to a multiple of TEAM, so that all threads have equally many. Ignore indices from n on.
  DEVICE Each all(int n) const { return {rank, (n + TEAM - 1) / TEAM * TEAM}; }
  DEVICE bool leader() const { return TEAM == 1 || rank == 0; }
};
