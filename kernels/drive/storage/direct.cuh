// direct.cuh -- Storage of observations that `observe` writes directly to global memory, or on chip (shared memory or registers),
// from where they are then stored. Also the common parts of all storage classes in `storage/`.
//
// A storage class has `OnChip<Kind>`, its memory in the workspace for a group, and
//   begin()            called when a rollout begins. May start loads for `copy_first`
//   copy_first()       copies the observation before the rollout to row -1
//   SPREAD             whether environments call copy_first before different steps of a rollout, instead of all before the first
//   row(env, view, r)  points `env` at the memory in which row r is to be written
//   keep(view, r)      stores row r, which was just written, in its final place, unless `commit` does
//   keep_own(view, r)  the same for this environment only, independent of the others in its warp
//   commit(r)          called when step r ends. Stores the rows that `keep` has left
#pragma once
#include "drive/groups.cuh"

// FINAL: the state at the end of an episode. NEXT: the state from which the next step starts.
enum View { FINAL, NEXT };

// Return the address of row r of a group in global memory.
template <class Kind> DEVICE auto* global_obs(const GroupRows<Kind>& rows, const View view, const size_type r) {
  typedef typename Kind::ObsRows::Global Obs;
  return (view == NEXT ? rows.obs : rows.final_obs) + r * (global_bytes<Kind>(rows.packed) / sizeof(Obs));
}

// copy_current_obs for rows of bool, which are converted to bits, the format of rollouts.
template <class Kind>
DEVICE void copy_current_flags(const Team team, const GroupRows<Kind>& rows, const int e, const int num_envs) {
  constexpr int OBS = Kind::OBS, WORDS = Kind::WORDS;
  u32* const to = (u32*)rows.obs - (size_type)(num_envs - e) * (Kind::COUNT * WORDS);
  const u8* const from = rows.current_obs + e * global_bytes<Kind>(rows.current_packed);
  for (int n : team.each(Kind::COUNT * WORDS)) {
    to[n] = rows.current_packed ? ((const u32*)from)[n] : word_of<OBS>(from + n / WORDS * OBS, n % WORDS);
  }
}

// Copy the current observations to row -1.
DEVICE void copy_current_obs(const Team team, const EachGroup<GroupRows>& rows, const int e, const int num_envs) {
  each_group([&](auto kind, const auto& of_group) INLINED {
    if constexpr (kind.BITS) {
      copy_current_flags(team, of_group, e, num_envs);
    } else {
      constexpr int SIZE = kind.COUNT * kind.OBS;
      copy_obs<SIZE, false>(team, of_group.obs - (size_type)(num_envs - e) * SIZE, of_group.current_obs + (size_type)e * SIZE);
    }
  }, rows);
}

// Rows that `observe` writes directly to global memory.
template <class Kind> struct InPlaceObs {};
template <class Kind>
DEVICE auto* begin_obs(const Team, InPlaceObs<Kind>&, const GroupRows<Kind>& rows, const View view, const size_type r) {
  return global_obs(rows, view, r);
}
template <class Kind> DEVICE void keep_obs(const Team, const InPlaceObs<Kind>&, const GroupRows<Kind>&, View, size_type) {}
// Rows that `observe` writes on chip (a team's shared memory, or a thread's registers or stack), and that are then stored with wide
// accesses.
template <class Kind> DEVICE auto* begin_obs(const Team team, OnChipObs<Kind>& on_chip, const GroupRows<Kind>&, View, size_type) {
  if constexpr (Kind::BITS) clear_rows<Kind>(team, on_chip.obs);
  return on_chip.obs;
}
template <class Kind>
DEVICE void keep_obs(const Team team, const OnChipObs<Kind>& on_chip, const GroupRows<Kind>& rows, const View view,
                     const size_type r) {
  store_obs<Kind>(team, global_obs(rows, view, r), on_chip.obs, rows.packed);
}

// SHARED: all rows are written on chip. Otherwise only rows of bool are.
template <bool SHARED> struct TeamObs {
  template <class Kind> using OnChip = typename Choose<(SHARED || Kind::BITS), OnChipObs<Kind>, InPlaceObs<Kind>>::type;
  // Copying large rows uses more memory bandwidth than a step. If blocks copy at different times, others step meanwhile.
  static constexpr bool SPREAD = !SHARED && TEAM > 32;
  const Team team;
  const EachGroup<GroupRows>& rows;
  EachGroup<OnChip>& on_chip;
  const int e, num_envs;

  DEVICE TeamObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<OnChip>& on_chip, const int e, const int num_envs)
      : team(team), rows(rows), on_chip(on_chip), e(e), num_envs(num_envs) {}
  DEVICE void begin() const {}
  DEVICE void copy_first() const { copy_current_obs(team, rows, e, num_envs); }
  DEVICE void row(Env& env, const View view, const size_type r) const {
    each_group([&](auto, auto& group, auto& of_group, const auto& global) INLINED {
      group.obs_row = begin_obs(team, of_group, global, view, r);
    }, env, on_chip, rows);
  }
  DEVICE void keep(const View view, const size_type r) const {
    each_group([&](auto, auto& of_group, const auto& global) INLINED { keep_obs(team, of_group, global, view, r); }, on_chip, rows);
  }
  DEVICE void keep_own(const View view, const size_type r) const { keep(view, r); }
  DEVICE void commit(size_type) const {}
};
