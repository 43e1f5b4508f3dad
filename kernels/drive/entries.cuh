// entries.cuh -- what a byte of a Workspace is, in an author's words: for what races.cuh finds.
#pragma once

namespace faults {
struct StateField { const char* name; size_type at, bytes, element; };  // in bytes
#include "generated/fields.cuh"

// Where `byte` is in `part`, or -1.
template <class Part> i64 inside(const Part& part, const void* byte) {
  const i64 at = (const char*)byte - (const char*)&part;
  return at >= 0 && at < (i64)sizeof(Part) ? at : -1;
}

inline void name_field(const size_type at, char (&text)[64]) {
  for (const StateField& field : STATE_FIELDS) {
    if (at < field.at || at >= field.at + field.bytes) continue;
    if (field.bytes == field.element) snprintf(text, sizeof(text), "state.%s", field.name);
    else snprintf(text, sizeof(text), "state.%s[%zu]", field.name, (at - field.at) / field.element);
  }
}

template <class Kind, class Near> void name_row(const char* of, const Near& near, const void* byte, char (&text)[64]) {
  if constexpr (ROWS_NEAR) {
    if (const i64 at = inside(near.reward, byte); at >= 0) snprintf(text, sizeof(text), "%s.reward(%d)", of, (int)at / 4);
  }
}
template <class Kind, class Near> void name_observation(const char* of, const Near& near, const void* byte, char (&text)[64]) {
  if constexpr (sizeof(near) >= sizeof(obs_t) * Kind::COUNT * Kind::OBS) {
    const i64 at = inside(near, byte);
    const int entry = (int)at / (int)sizeof(obs_t);
    if (at >= 0) snprintf(text, sizeof(text), "%s.obs(%d)[%d]", of, entry / Kind::OBS, entry % Kind::OBS);
  }
}
}

inline void name_entry(const Workspace& work, const size_type byte, char (&text)[64]) {
  const char* const here = (const char*)&work + byte;
  snprintf(text, sizeof(text), "byte %zu of the team's memory", byte);
  if (const i64 at = faults::inside(work.shared, here); at >= 0) snprintf(text, sizeof(text), "shared, from its byte %d on", (int)at);
  if constexpr (STATE_NEAR) if (const i64 at = faults::inside(work.state, here); at >= 0) faults::name_field((size_type)at, text);
  each_group([&](auto kind, const auto& rows, const auto& obs) {
    faults::name_row<decltype(kind)>(kind.name(), rows, here, text);
    faults::name_observation<decltype(kind)>(kind.name(), obs, here, text);
  }, work.rows, work.obs);
}
