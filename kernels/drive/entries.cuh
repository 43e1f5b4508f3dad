// entries.cuh -- Map a byte of a Workspace to the name of its variable in the environment's source, for race reports
// (backend/races.cuh).
#pragma once

namespace faults {
typedef char (&Text)[64];
struct StateField { const char* name; size_type at, bytes, element; };  // in bytes, ordered by offset
#include "generated/fields.cuh"

// Where `byte` is in `part`, or -1.
template <class Part> i64 inside(const Part& part, const char* byte) {
  const i64 at = byte - (const char*)&part;
  return at >= 0 && at < (i64)sizeof(Part) ? at : -1;  // mutant(swap <): named afterwards
}

inline void name_state(const OnChipState& on_chip, const char* byte, Text text) {
  const i64 at = inside(on_chip, byte);
  for (const StateField& field : STATE_FIELDS) {  // the last that begins there, or before
    if (at < (i64)field.at) continue;
    if (field.bytes == field.element) snprintf(text, sizeof(text), "state.%s", field.name);
    else snprintf(text, sizeof(text), "state.%s[%zu]", field.name, ((size_type)at - field.at) / field.element);
  }
}
inline void name_state(const NoRows&, const char*, Text) {}

template <class Kind> void name_rows(const OnChipRows<Kind>& on_chip, const char* byte, Text text) {
  const i64 at = inside(on_chip.reward, byte);
  if (at >= 0) snprintf(text, sizeof(text), "%s.reward(%d)", Kind::name(), (int)at / 4);
}
template <class Kind> void name_rows(const NoRows&, const char*, Text) {}

template <class Kind> void name_obs(const OnChipObs<Kind>& on_chip, const char* byte, Text text) {
  const i64 at = inside(on_chip, byte);
  const int entry = (int)at / (int)sizeof(on_chip.obs[0]);
  if (at >= 0) snprintf(text, sizeof(text), "%s.obs(%d)[%d]", Kind::name(), entry / Kind::OBS, entry % Kind::OBS);
}
template <class Kind> void name_obs(const InPlaceObs<Kind>&, const char*, Text) {}
}

inline void name_entry(const Workspace& work, const size_type at, faults::Text text) {
  const char* const byte = (const char*)&work + at;
  faults::name_state(work.state, byte, text);
  each_group([&](auto kind, const auto& rows, const auto& obs) {
    faults::name_rows<decltype(kind)>(rows, byte, text);
    faults::name_obs<decltype(kind)>(obs, byte, text);
  }, work.rows, work.obs);
  const i64 shared = faults::inside(work.shared, byte);
  if (shared >= 0) snprintf(text, sizeof(text), "shared, from its byte %d on", (int)shared);
}
