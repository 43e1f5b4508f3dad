// direct.cuh -- observations are made in global memory, where they stay. Also what the ways of `storage/` have in common.
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
template <class Kind> DEVICE obs_t* far_obs(const GroupRows<Kind>& rows, const View view, const size_type r) {
  return (view == NEXT ? rows.obs : rows.final_obs) + r * (Kind::COUNT * Kind::OBS);
}

// Copies what is there now to the row before the first.
DEVICE void copy_current_obs(const Team team, const EachGroup<GroupRows>& rows, const int e, const int num_envs) {
  each_group([&](auto kind, const auto& of_group) INLINED {
    constexpr int SIZE = kind.COUNT * kind.OBS;
    copy_obs<SIZE, false>(team, of_group.obs - (size_type)(num_envs - e) * SIZE, of_group.current_obs + (size_type)e * SIZE);
  }, rows);
}

struct DirectObs {
  template <class Kind> struct Near {};
  // Large rows keep memory busier than any step does while they are copied, so that other blocks had better step meanwhile.
  static constexpr bool SPREAD = TEAM > 32;
  const Team team;
  const EachGroup<GroupRows>& rows;
  const int e, num_envs;

  DEVICE DirectObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<Near>&, const int e, const int num_envs)
      : team(team), rows(rows), e(e), num_envs(num_envs) {}
  DEVICE void begin() const {}
  DEVICE void copy_first() const { copy_current_obs(team, rows, e, num_envs); }
  DEVICE void row(Env& env, const View view, const size_type r) const {
    each_group([&](auto, auto& group, const auto& of_group) INLINED { group.obs_row = far_obs(of_group, view, r); }, env, rows);
  }
  DEVICE void keep(View, size_type) const {}
  DEVICE void keep_own(View, size_type) const {}
  DEVICE void commit(size_type) const {}
};
