"""What learners on policy and off policy share: rates that follow schedules, and observations that may be normalised."""

from cupydrive.playing.rollout import Rollout


class ScheduledLearner:
    """A learner that has made its settings and its networks.

    Attributes:
        scheduled: ``Scheduled``, its settings as they are now.
        obs_rms: ``RunningMeanStd`` of observations; None: networks see them as they are.
        statistics: ``Statistics``, which updates it.
        groups: The ``Group``s that it plays.
    """

    def schedule(self, step):
        """Write the settings as they are after ``step`` env-steps."""
        self.scheduled.set(step)

    @property
    def learning_rate(self):
        """The rate that was written last; of several networks, the critic's."""
        return self.scheduled.now("learning_rate")

    def normalized(self, obs):
        """Return observations (B, D) as the networks see them."""
        return obs if self.obs_rms is None else self.obs_rms.normalized(obs)

    def update_obs_statistics(self, rollout: Rollout) -> None:
        """Update the mean and deviation of observations; those of inactive agents do not count."""
        with rollout.stream():
            for g in self.groups if self.obs_rms is not None else ():
                obs, active = rollout.obs[g.name], rollout.active.get(g.name)
                self.statistics.update(self.obs_rms, obs[1:] if active is None else obs[:-1], active)
