"""What a game in a terminal and one in a window share: a step when it is due, the next episode a while after the last."""

from cupydrive.drawing.frames import score
from cupydrive.inputs.keys import AGAIN, END, PAUSE

AFTER_THE_END = 1.2  # seconds until the next episode
KEYS = f"space pauses, {AGAIN} begins anew, {END} ends"


class Rounds:
    """Takes the steps of a ``Game`` in time. It begins with a pause.

    Args:
        game: ``Game``.
        stage: Function of a ``Moment``, called with each that is to be shown.
        fps: Steps a second.
        episodes: End after so many; None: when the person ends it.

    Attributes:
        ended: Whether the person has ended it, or ``episodes`` are over.
        due: Time of the next step.
        running: Whether it is not paused.
        results: ``(steps, score in words)`` of each episode that is over.
        said: What the person should know, in a few words.
    """

    def __init__(self, game, fps, episodes=None):
        self.game, self.fps, self.episodes = game, fps, episodes
        self.ended = self.running = False
        self.results, self.due, self._last = [], 0.0, None
        self.said = "any key begins"

    @property
    def recording(self):
        """The ``Recording`` of the last episode that is over, or of the first if it was broken off; None: of no step."""
        return self.game.recording if self._last is None and self.game.moment.step else self._last

    def press(self, key, now):
        """Take in a key; return whether it is one that plays, and not a command."""
        if key == END:
            self.ended = True
        elif key == AGAIN:
            self.game.begin()
            self.said = ""
        elif key == PAUSE and self.running:
            self.running, self.said = False, "paused: any key goes on"
            return False
        if not self.running and not self.ended:
            self.running, self.due, self.said = True, now, ""
        return key not in (END, AGAIN, PAUSE)

    def tick(self, now, pressed):
        """Take a step, or begin the next episode, if it is due; return whether there is something new to show.

        Args:
            now: Seconds, of any clock.
            pressed: Keys that are down, in the order in which they went down.
        """
        if not self.running or self.ended or now < self.due:
            return False
        late = now - self.due
        self.due = (
            self.due if late < 1 / self.fps else now
        ) + 1 / self.fps  # a step that was missed is not made up for
        if self.game.moment.over[0]:
            self.game.begin()
            self.said = ""
            return True
        moment = self.game.step(pressed)
        if moment.over[0]:
            self.results.append((moment.step, score(moment, 0)))
            self._last, self.due, self.said = self.game.recording, now + AFTER_THE_END, "over"
            self.ended = len(self.results) == self.episodes
        return True
