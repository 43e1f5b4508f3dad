// images.cuh -- Images that a convolutional layer reads, and their patches: the entries under a kernel at one of its POSITIONS.
//
// A row is an image (IMAGE_HEIGHT, IMAGE_WIDTH, CHANNELS). Patches are numbered row by row, and within a row by position.
// Constants: those of sequences.cuh, IMAGE_HEIGHT, IMAGE_WIDTH, CHANNELS, SPAN (height and width of a kernel), STRIDE, OBS (entries
// of a patch), TILE (patches of a team). Generated: OBSERVES (1: images are observations).
// call: kernel arguments (drive/launch.cuh).
#pragma once
#include "learn/functions.cuh"
#include "learn/observed.cuh"
#include "learn/layerwise/sequences.cuh"

constexpr int PLACES_DOWN = (IMAGE_HEIGHT - SPAN) / STRIDE + 1, PLACES_ACROSS = (IMAGE_WIDTH - SPAN) / STRIDE + 1;
constexpr int POSITIONS = PLACES_DOWN * PLACES_ACROSS, ENTRIES = IMAGE_HEIGHT * IMAGE_WIDTH * CHANNELS;
constexpr int IN_STRIDE = padded(ENTRIES);  // row length of images that are not observations
constexpr int RUN = SPAN * CHANNELS;        // contiguous entries of an image under one row of a kernel
static_assert(OBS == SPAN * RUN, "inputs are what a kernel covers");

// Index of the first entry of an image under the kernel at a position.
DEVICE int corner_of(const int position) {
  return (position / PLACES_ACROSS * IMAGE_WIDTH + position % PLACES_ACROSS) * STRIDE * CHANNELS;
}

// Entries of an image as the layer sees them.
struct Image {
  const Observed* at;
  const float* center;
  const float* scale;

  // Image `row` of an array of observations, or of a layer's outputs.
  DEVICE Image(const void* rows, const size_type row, const float* center, const float* scale)
      : at(OBSERVES ? observed<ENTRIES>(rows, row) : (const Observed*)((const float*)rows + row * IN_STRIDE)), center(center),
        scale(scale) {}
  DEVICE float get(const int d) const {
    if constexpr (OBSERVES) return policy::normalize_entry(entry_of(at, d), center, scale, d);
    else return entry_of(at, d);
  }
};
// Return the image of a block's r-th row. rows: (IN_STRIDE) of floats, if images are not observations.
DEVICE Image image_of(const Learn& learn, [[maybe_unused]] const void* rows, const Sequences& of, const int r) {
  if constexpr (OBSERVES) {
    const RowIndex place = of.place(r);
    return {learn.obs[place.group], (size_type)place.row, learn.center, learn.scale};
  } else {
    return {rows, of.row(r), nullptr, nullptr};
  }
}

// Call visit(row, its first patch in the tile, the position of that patch, number of patches) for each row with any of patches
// [from, from + count).
template <class Visit> DEVICE void each_row(const int from, const int count, Visit visit) {
  for (int row = from / POSITIONS; row * POSITIONS < from + count; ++row) {
    const int begin = math::max(from, row * POSITIONS), end = math::min(from + count, (row + 1) * POSITIONS);
    visit(row, begin - from, begin - row * POSITIONS, end - begin);
  }
}

// The patches of a block that one team computes. A row has EACH patches, or EACH groups of pixels.
template <int EACH> struct BlockTile {
  Sequences of;
  int from, count;
  DEVICE static int tiles_of_block(const Learn& call) { return (steps_of(call) * most_sequences(call) * EACH + TILE - 1) / TILE; }
  DEVICE BlockTile(const Learn& call, const int e) : of(call, e / tiles_of_block(call)), from(e % tiles_of_block(call) * TILE) {
    const int left = of.rows() * EACH - from;
    count = left < TILE ? left : TILE;
  }
};
