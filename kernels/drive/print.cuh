// print.cuh -- env.print(format, values...): lines from one environment of the batch, on CPU and GPU.
//
// A kernel records format and values, and Python formats them after the launch (cupydrive/codegen/printing.py), so that a notebook
// shows them. This is compiled only if a kernel's text contains `.print(`.
#pragma once

#if PRINTS
constexpr int PRINT_BYTES = 65536;

struct Printed {
  int env;   // environment of the batch that prints, from 0, or -1
  int used;  // bytes of `text`
  int lost;  // lines that did not fit
  char text[PRINT_BYTES];

  // One line: elapsed (4 bytes), number of values (1), format with its final 0, and for each value its type (1) and its bits (8).
  template <class... Values> DEVICE void line(const int elapsed, const char* format, Values&&... values) {
    int length = 0;
    while (format[length] != 0) ++length;
    if (used + 4 + 1 + length + 1 + 9 * (int)sizeof...(Values) > PRINT_BYTES) { lost += 1; return; }
    write((u64)elapsed, 4);
    write(sizeof...(Values), 1);
    for (int i = 0; i <= length; ++i) write((u64)format[i], 1);
    (write_value((Values&&)values), ...);  // cast: an Array's element becomes a number only as an rvalue
  }

 private:
  DEVICE void write(const u64 word, const int bytes) {
    for (int i = 0; i < bytes; ++i) text[used + i] = (char)(word >> 8 * i);
    used += bytes;
  }
  DEVICE void write_value(const char type, const u64 word) { write((u64)type, 1); write(word, 8); }
  // Smaller integers become int. Both `long` and `long long` are here, because i64 is one of them, depending on the platform.
  DEVICE void write_value(const float x) { write_value('f', math::bits(x)); }
  DEVICE void write_value(const bf16 x) { write_value('f', (u64)x.bits << 16); }
  DEVICE void write_value(const int x) { write_value('i', (u64)x); }
  DEVICE void write_value(const long x) { write_value('i', (u64)x); }
  DEVICE void write_value(const long long x) { write_value('i', (u64)x); }
  DEVICE void write_value(const unsigned int x) { write_value('u', (u64)x); }
  DEVICE void write_value(const unsigned long x) { write_value('u', (u64)x); }
  DEVICE void write_value(const unsigned long long x) { write_value('u', (u64)x); }
};

// The environment that prints is known when the launch begins.
#define PRINT_FROM(env, batch, e) if ((batch).printed != nullptr && (batch).printed->env == (e)) (env).printed = (batch).printed
#else
struct Printed;
#define PRINT_FROM(env, batch, e) (void)0
#endif
