"""The commands of `cupydrive demo`, which check, train, evaluate, draw and measure."""

TAG_OPTIONS = "--heuristic runner --param grid_length=10 --set learning_rate=2.5e-3"
DEMO_COMMANDS = (
    "check all --agent-steps 20000",
    "evaluate cartpole --policies random --episodes 500",
    "train cartpole --steps 5e5 --out runs/demo/cartpole --overwrite",
    f"train tag_grid --steps 1e5 --num-envs 64 {TAG_OPTIONS} --out runs/demo/tag_grid --overwrite",
    "evaluate runs/demo/cartpole --episodes 500",
    "evaluate runs/demo/tag_grid --episodes 500",
    "render runs/demo/cartpole --episodes 4 --out runs/demo/cartpole.mp4",
    "render runs/demo/tag_grid --episodes 4 --out runs/demo/tag_grid.mp4",
    "bench rollout --env cartpole tag_grid tag_continuous",
)
NEXT = """
next:
  cupydrive train acrobot --out runs/acrobot
  cupydrive play tag_grid --agent runner --param grid_length=10
  cupydrive new my_env"""
