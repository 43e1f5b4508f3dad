// direct.cuh -- observations are made in global memory, where they stay, or near; and what the ways of `storage/` have in common.
//
// A way has `Near<Kind>`, what it keeps in the workspace for a group, and
//   begin()            called when a rollout begins; may begin to load what `copy_first` needs
//   copy_first()       copies the observation before the rollout to the row before the first
//   SPREAD             whether environments do that before different steps of a rollout, not all of them before the first
//   row(env, view, r)  points `env` at the memory in which row r is to be made
//   keep(view, r)      stores row r, which was just made, where it stays, unless `commit` does that
//   keep_own(view, r)  the same for this environment alone, whatever the others of its warp do
//   commit(r)          called when step r ends; stores what `keep` has left
#pragma once
#include "drive/groups.cuh"

// The state that an episode has ended with, or the one that the next step begins with.
enum View { FINAL, NEXT };

// Where row r of a group lies in global memory.
template <class Kind> DEVICE auto* far_obs(const GroupRows<Kind>& rows, const View view, const size_type r) {
  typedef typename Kind::ObsRows::Far Obs;
  return (view == NEXT ? rows.obs : rows.final_obs) + r * (far_bytes<Kind>(rows.packed) / sizeof(Obs));
}

// The same for rows of bool, which become bits: those of a rollout always are.
template <class Kind>
DEVICE void copy_current_flags(const Team team, const GroupRows<Kind>& rows, const int e, const int num_envs) {
  constexpr int OBS = Kind::OBS, WORDS = Kind::WORDS;
  u32* const to = (u32*)rows.obs - (size_type)(num_envs - e) * (Kind::COUNT * WORDS);
  const u8* const from = rows.current_obs + e * far_bytes<Kind>(rows.current_packed);
  for (int n : team.each(Kind::COUNT * WORDS)) {
    to[n] = rows.current_packed ? ((const u32*)from)[n] : word_of<OBS>(from + n / WORDS * OBS, n % WORDS);
  }
}

// Copies what is there now to the row before the first.
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

// Rows that are made where they stay.
template <class Kind> struct NoNear {};
template <class Kind>
DEVICE auto* begin_obs(const Team, NoNear<Kind>&, const GroupRows<Kind>& rows, const View view, const size_type r) {
  return far_obs(rows, view, r);
}
template <class Kind> DEVICE void keep_obs(const Team, const NoNear<Kind>&, const GroupRows<Kind>&, View, size_type) {}
// Rows that are made near (shared by a team; of one thread, its own), and leave in wide accesses.
template <class Kind> DEVICE auto* begin_obs(const Team team, NearObs<Kind>& near, const GroupRows<Kind>&, View, size_type) {
  if constexpr (Kind::BITS) clear_rows<Kind>(team, near.obs);
  return near.obs;
}
template <class Kind>
DEVICE void keep_obs(const Team team, const NearObs<Kind>& near, const GroupRows<Kind>& rows, const View view, const size_type r) {
  store_obs<Kind>(team, far_obs(rows, view, r), near.obs, rows.packed);
}

// SHARED: rows are made near; otherwise only those of bool.
template <bool SHARED> struct TeamObs {
  template <class Kind> using Near = typename Choose<(SHARED || Kind::BITS), NearObs<Kind>, NoNear<Kind>>::type;
  // Large rows keep memory busier than any step does while they are copied, so that other blocks had better step meanwhile.
  static constexpr bool SPREAD = !SHARED && TEAM > 32;
  const Team team;
  const EachGroup<GroupRows>& rows;
  EachGroup<Near>& near;
  const int e, num_envs;

  DEVICE TeamObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<Near>& near, const int e, const int num_envs)
      : team(team), rows(rows), near(near), e(e), num_envs(num_envs) {}
  DEVICE void begin() const {}
  DEVICE void copy_first() const { copy_current_obs(team, rows, e, num_envs); }
  DEVICE void row(Env& env, const View view, const size_type r) const {
    each_group([&](auto, auto& group, auto& of_group, const auto& far) INLINED {
      group.obs_row = begin_obs(team, of_group, far, view, r);
    }, env, near, rows);
  }
  DEVICE void keep(const View view, const size_type r) const {
    each_group([&](auto, auto& of_group, const auto& far) INLINED { keep_obs(team, of_group, far, view, r); }, near, rows);
  }
  DEVICE void keep_own(const View view, const size_type r) const { keep(view, r); }
  DEVICE void commit(size_type) const {}
};
