// gather.cu -- Gather the rows of a minibatch from several arrays in one launch.
//
// Constants: COLUMNS. Generated: column_words(column), the 4-byte words in one row of each array.
#include "drive/platform.cuh"
#include "generated/spaces.cuh"

struct Workspace {};
struct Gather {
  int rows;                    // M: rows of the minibatch
  const i64* index;            // (M): row of the sources, in [0, B)
  const u32* from[COLUMNS];    // (B, column_words(k))
  u32* to[COLUMNS];            // (M, column_words(k))
};

// One team per row of the minibatch. Its threads copy neighboring words.
DEVICE void gather_row(const Gather& call, const Team team, const int row) {
  const size_type source = (size_type)call.index[row];
  UNROLL for (int k = 0; k < COLUMNS; ++k) {
    const int words = column_words(k);
    const u32* const from = call.from[k] + source * words;
    u32* const to = call.to[k] + (size_type)row * words;
    for (int w : team.each(words)) to[w] = from[w];
  }
}

#include "drive/launch.cuh"
KERNEL(gather, Gather, call.rows, gather_row(call, team, e))
