// shared.cuh -- observations are made in near memory (shared by a team; of one thread, its own) and leave in wide accesses.
#pragma once
#include "drive/storage/direct.cuh"

struct SharedObs {
  template <class Kind> struct Near { alignas(16) obs_t obs[Kind::COUNT * Kind::OBS]; };
  static constexpr bool SPREAD = false;
  const Team team;
  const EachGroup<GroupRows>& rows;
  EachGroup<Near>& near;
  const int e, num_envs;

  DEVICE SharedObs(const Team team, const EachGroup<GroupRows>& rows, EachGroup<Near>& near, const int e, const int num_envs)
      : team(team), rows(rows), near(near), e(e), num_envs(num_envs) {}
  DEVICE void begin() const {}
  DEVICE void copy_first() const { copy_current_obs(team, rows, e, num_envs); }
  DEVICE void row(Env& env, View, size_type) const {
    each_group([&](auto, auto& group, auto& of_group) INLINED { group.obs_row = of_group.obs; }, env, near);
  }
  DEVICE void keep(const View view, const size_type r) const {
    each_group([&](auto kind, const auto& far, auto& of_group) INLINED {
      copy_obs<kind.COUNT * kind.OBS, true>(team, far_obs(far, view, r), of_group.obs);
    }, rows, near);
  }
  DEVICE void keep_own(const View view, const size_type r) const { keep(view, r); }
  DEVICE void commit(size_type) const {}
};
