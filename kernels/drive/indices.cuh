// indices.cuh -- which indices belong to which member of a team, and arrays that one thread may keep in registers.
#pragma once

// The indices of [0, n) that belong to one member: rank, rank + TEAM, ... Made for a range-based for.
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

// The same, where `i` is the member's k-th index. For a constant n a compiler knows how many turns there are: of few of them
// it makes no loop, but copies of which only the last asks whether there is such an index. So the members of a warp do not wait
// for each other, and the agents of one member are computed side by side.
constexpr int own_count(const int n) { return (n + TEAM - 1) / TEAM; }
#define FOR_OWN(team, k, i, n)                         \
  UNROLL_OWN for (int k = 0; k < own_count(n); ++k)  /* equal(swap <): one turn more, that does nothing */ \
    if (const int i = (team).rank + k * TEAM; i < (n))


// What an array is indexed with. A debug build knows where the index was written (faults.cuh).
#ifdef DEBUG_BOUNDS
struct Index {
  i64 i; const char* file; int line;
  // Of any integer, and of what becomes one, as an element of another array does.
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

// N values, one for each agent say, that are indexed like any array. One thread may keep them in registers, which cannot be
// indexed: there an index that the compiler does not know selects among all of them. So `s.x[i]` of an array that may be written
// is no float but an Element, which becomes one where it stands: write `const float x = s.x[i]`. `float& x = s.x[i]` does not
// compile, nor does reading x after `auto x = s.x[i]`, which would see what is written to the array later.
constexpr int MOST_SELECTED = 8;
template <class T, int N> struct Array {
  static constexpr bool SELECTED = REGISTERS_HAVE_NO_INDEX && TEAM == 1 && N <= MOST_SELECTED;
  T of[N];

  DEVICE T get(int i) const {
    if constexpr (!SELECTED) return of[i];
    T selected = of[0];
    UNROLL for (int k = 1; k < N; ++k) selected = k == i ? of[k] : selected;  // equal(swap <): no index is N
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

// Names a type if one of these is a float or a double, or an entry of an array of them, whose fraction a function of whole
// numbers would drop without a word.
template <class T> T&& a_value();
template <class T> struct Fractions { enum : bool { ANY = false }; };
template <> struct Fractions<float> { enum : bool { ANY = true }; };
template <> struct Fractions<double> { enum : bool { ANY = true }; };
template <bool> struct Refused {};
template <> struct Refused<true> { typedef int type; };
template <class... Ts> using IfFractions = typename Refused<(Fractions<decltype(a_value<Ts>() + 0)>::ANY || ...)>::type;

// What every Team has, whatever runs it.
struct Member {
  int rank;  // [0, TEAM)

  // Of floats there are none of these: a sum of floats depends on the order of its members.
  template <class T> IfFractions<T> sum(T) const = delete;
  float min(float) const = delete;
  double min(double) const = delete;
  template <class T> IfFractions<T> before(T, int*) const = delete;
  template <int N, class T> IfFractions<T> add(Array<int, N>&, int, T) const = delete;
  template <int N, class T> int add(Array<float, N>&, int, T) const = delete;

  DEVICE Each each(int n) const { return {rank, n}; }
  // The same, followed by indices of n or more where a member has fewer than others: all members have equally many.
  DEVICE Each all(int n) const { return {rank, (n + TEAM - 1) / TEAM * TEAM}; }
  DEVICE bool leader() const { return TEAM == 1 || rank == 0; }
};
