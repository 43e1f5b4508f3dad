"""The tests that judge each altered shared kernel (shared_mutation.py), most telling first: a few seconds for each file."""

TRAIN = "tests/kernels/train/test_training_kernels.py"
# With a build for AddressSanitizer and UndefinedBehaviorSanitizer, for what stays without consequences by luck.
SANITIZED = [
    f"tests/executors/test_sanitizers.py::test_a_check_is_clean[{name}-first-memory]"
    for name in ("cartpole", "tag_grid")
]
BATCH = [
    "tests/kernels/drive/test_shared_kernels.py",
    "tests/kernels/drive/test_teams.py::test_what_is_kept_near_shows_in_no_bit[tag_grid-rows_far]",
    "tests/kernels/drive/test_teams.py::test_what_is_kept_near_shows_in_no_bit[tag_grid-state_far]",
    "tests/kernels/drive/test_teams.py::test_a_team_of_threads_is_a_team_of_one[tag_grid-4]",
    "tests/kernels/drive/test_teams.py::test_a_large_team_copies_the_observations_before_a_rollout_before_any_of_its_steps[tag_grid-1]",
    "tests/kernels/drive/test_simd.py::test_long_rollouts_of_many_are_short_ones_of_few[mountain_car_continuous]",
    "tests/kernels/drive/test_simd.py::test_what_a_step_draws_and_counts_and_a_limit_that_ends_the_task_are_the_references",
]
# Of one agent whose environments are not stepped side by side.
ALLOWED = [
    "tests/kernels/drive/test_masks.py::test_all_choices_may_be_allowed_at_once",
    "tests/kernels/drive/test_masks.py::test_a_head_that_allows_nothing_allows_all",
]
MASKS = "tests/kernels/drive/test_masks.py::test_the_checker_compares_masks_and_random_actions_obey_them[1]"
PRINTED = [
    "tests/simulation/test_print.py::test_a_step_prints_one_line_for_one_environment[cpu]",
    "tests/simulation/test_print.py::test_a_team_prints_each_line_once",
]
TAG_GRID = "tests/checks/test_check.py::test_every_environment_passes[tag_grid]"  # has its own search for the nearest
NEAREST = [
    f"tests/kernels/drive/test_neighbours.py::{name}"
    for name in (
        *(f"test_the_order_is_that_of_a_sort[{size}-cpu]" for size in ("9-3", "33-10", "300-1", "33-1", "257-5")),
        *(f"test_the_order_is_that_of_a_sort[{size}-debug]" for size in ("9-3", "257-5")),
        *(f"test_the_order_is_that_of_a_sort[{size}-team]" for size in ("33-10", "257-5", "3-2")),
        "test_who_is_out_has_no_neighbours",
        *(f"test_the_order_is_that_of_a_sort[{size}-cpu]" for size in ("400-32", "1005-10", "8-7")),
    )
]
ROWS = [
    *(
        f"tests/kernels/drive/test_neighbours.py::test_the_order_is_that_of_a_sort[9-3-{device}]"
        for device in ("cpu", "debug", "team")
    ),
    *(
        f"tests/kernels/drive/test_neighbours.py::test_everybody_is_seen_by_id[{device}]"
        for device in ("cpu", "debug", "team")
    ),
    "tests/kernels/drive/test_neighbours.py::test_who_has_no_row_writes_nothing",
    "tests/kernels/drive/test_neighbours.py::test_who_is_out_has_a_row_of_zeros",
]
LEARN = "tests/kernels/learn/test_learner_kernels.py::test_"
NEAR = "tests/kernels/learn/test_tensor_gradients.py::test_gradients_of_bfloat16_factors_are_near_torchs"
ROWS_OF = "tests/kernels/learn/test_minibatches.py::test_"
BOUND = ROWS_OF + "a_value_at_the_bound_of_its_clip_has_the_gradient_of_torch"
MINIBATCHES = [
    ROWS_OF + "minibatches_are_the_same_by_any_team_in_any_order",
    ROWS_OF + "moments_are_those_of_all_rows_in_the_game",
    ROWS_OF + "a_rank_draws_and_weighs_the_rows_of_its_blocks_as_one_that_has_all",
]
TEAM = LEARN + "bits_depend_on_neither_tiles_nor_threads_nor_teams[team of 4]"
RECORDED = "tests/training/test_learner.py::test_any_number_of_threads_gives_the_recorded_weights[cartpole]"
STEPS = [
    TEAM,
    LEARN + "adam_is_torchs",
    LEARN + "adam_by_hand",
    LEARN + "corrections_of_a_checkpoints_step_are_those_of_going_on",
    LEARN + "corrections_of_many_steps",
    LEARN + "the_target_is_of_the_mean_divergence",
    LEARN + "either_the_loss_or_the_norm_may_overflow_alone",
    LEARN + "a_number_that_is_not_finite_stops_all_steps",
    LEARN + "an_epoch_above_the_target_is_the_last",
    LEARN + "pieces_of_any_size_have_the_same_sum",
    LEARN + "gradients_below_the_limit_of_their_norm_are_not_scaled",
    LEARN + "epochs_after_too_large_a_divergence_are_skipped_until_the_iteration_ends",
    LEARN + "gradients_are_torchs_in_float64[shared]",
    LEARN + "gradients_are_torchs_in_float64[A2C]",
]
NETWORK = [
    *(LEARN + f"gradients_are_torchs_in_float64[{name}]" for name in ("shared", "15 rows", "three layers, ReLU")),
    TEAM,
]
LOSSES = [
    TEAM,
    *(
        LEARN + f"gradients_are_torchs_in_float64[{name}]"
        for name in ("several heads, masks", "groups, leaving", "values clipped", "A2C", "Gaussian")
    ),
    ROWS_OF + "minibatches_share_out_all_rows_block_by_block",
    LEARN + "a_number_that_is_not_finite_stops_all_steps",
    LEARN + "pieces_of_any_size_have_the_same_sum",
]
TEAMS_OF = "tests/kernels/learn/test_tensor_teams.py::test_a_team_of_threads_has_the_"
BY_TEAMS = "of_one_by_matrix_units"
CHUNKS = "tests/kernels/learn/test_tensor_teams.py::test_a_row_is_found_in_chunks_of_one_size_as_in_any"
TENSOR = [
    f"{TEAMS_OF}gradients_{BY_TEAMS}[block]",
    *(
        f"{NEAR}[{name}]"
        for name in ("shared", "separate, two heads' layers", "three layers, ReLU", "groups, leaving", "Gaussian")
    ),
]
EPISODES = "tests/training/test_curves.py::test_a_point_is_the_mean_over_environments_of_each_ones_latest_episode"
GROUPS = [
    f"{TEAMS_OF}gradients_{BY_TEAMS}[warp groups]",
    *(f"{NEAR}[{name}, by warp groups]" for name in ("shared", "several heads, masks", "groups, leaving")),
    f"{NEAR}[three hidden layers, by warp groups]",  # of five tiles
]
PLAY = "tests/kernels/play/test_play.py::test_"
TOGETHER = "tests/training/test_together.py::test_"
CREW = PLAY + "a_crew_of_threads_has_the_bytes_of_one"
FORWARD = "tests/kernels/learn/test_forward_kernels.py::test_"
# Of whole networks, by blocks and by warps, against torch's.
PASSES = [
    FORWARD + f"a_warps_own_rows_have_the_bits_of_rows_that_a_block_shares[{name}]"
    for name in ("shared", "separate, uneven", "linear", "three layers")
]
PASSES_AND_DRAWS = PASSES + [
    FORWARD + f"actions_are_those_of_a_launch_of_their_own[{way}]"
    for way in ("tensor, box, 30", "tensor, several, 400")
]
BOUNDARY = "actions_of_bfloat16_factors_differ_where_the_draw_lies_at_a_boundary"
WIDE_FORWARD = LEARN + f"{BOUNDARY}[False-way2]"
WIDE = [
    f"{TEAMS_OF}gradients_{BY_TEAMS}[wide]",
    *(
        f"{NEAR}[{name}, by wide kernels]"
        for name in ("A2C", "groups, leaving", "Gaussian", "part by part", "256 and 256")
    ),
    WIDE_FORWARD,
    "tests/training/test_learner.py::test_wide_networks_go_on_from_restored_weights",
]
TABLES = [
    *(
        f"tests/simulation/test_tables.py::test_a_kernel_reads_what_numpy_reads_bit_for_bit[{of}]"
        for of in ("fast-1", "fast-3", "bounds-3")
    ),
    "tests/simulation/test_tables.py::test_a_wild_index_is_an_error_with_its_place_in_debug_builds",
]
WILD = [
    "tests/api/test_bad_input.py::test_a_fault_without_a_line_or_in_a_file_of_a_long_name_is_one",
    "tests/api/test_bad_input.py::test_a_debug_build_names_the_line_of_a_wild_index",
]
DIVIDED = [
    "tests/executors/test_trial.py::test_an_integer_divided_by_0_in_any_step_and_build_is_an_error_with_its_line"
]
REFUSED = "tests/codegen/test_refused_kernels.py"
RACES = [
    "tests/kernels/drive/test_teams.py::test_a_team_of_threads_is_a_team_of_one[tag_grid-4]",
    "tests/checks/test_races.py",
]
JUDGES = {
    "learn/exact/multiply.cuh": NETWORK,
    "learn/layers.cuh": [*NETWORK, LEARN + "adam_by_hand"],
    "learn/exact/network.cuh": NETWORK,
    "learn/exact/lanes.cuh": [
        *NETWORK,
        *(TEAM.replace("team of 4", how) for how in ("narrow vectors", "products by a library")),
        TENSOR[1],
    ],
    "learn/exact/gradient.cu": [
        ROWS_OF + "a_minibatch_of_no_rows_has_a_gradient_of_0",
        LEARN + "pieces_of_any_size_have_the_same_sum",
        *LOSSES,
    ],
    **dict.fromkeys(
        (
            "learn/mma/tensor.cuh",
            "learn/mma/mma.cuh",
            "learn/mma/tower_gradient.cuh",
            "learn/mma/tensor_gradient.cu",
        ),
        TENSOR,
    ),
    "learn/mma/tile.cuh": [CHUNKS, *TENSOR],
    **dict.fromkeys(
        ("learn/hopper/wgmma.cuh", "learn/hopper/group_tower.cuh", "learn/hopper/group_gradient.cu"), GROUPS
    ),
    **dict.fromkeys(("learn/mma/bfloat.cuh", "learn/mma/warps.cuh"), TENSOR + GROUPS),
    "learn/mma/tensor_layers.cuh": [*TENSOR, *GROUPS, WIDE_FORWARD],
    "learn/mma/warp_forward.cu": [f"{TEAMS_OF}outputs_{BY_TEAMS}[warps]", *PASSES_AND_DRAWS],
    **dict.fromkeys(("learn/mma/warp_rows.cuh", "learn/mma/outputs.cuh"), PASSES_AND_DRAWS),
    "learn/mma/tensor_forward.cu": [
        f"{TEAMS_OF}outputs_{BY_TEAMS}[block]",
        *PASSES,
        FORWARD + "a_team_of_threads_gives_the_bits_of_one_thread",
    ],
    **dict.fromkeys(
        ("learn/wide/wide.cuh", "learn/wide/wide_gradient.cu", "learn/wide/wide_rows.cuh", "learn/wide/wide_sums.cu"),
        WIDE,
    ),
    "learn/wide/wide_forward.cu": [
        f"{TEAMS_OF}outputs_{BY_TEAMS}[wide]",
        FORWARD + "actions_are_those_of_a_launch_of_their_own[wide, several, 30]",
        WIDE_FORWARD,
        WIDE[-1],
    ],
    "learn/wide/wide_weights.cu": [*WIDE[:2], WIDE[-1]],
    "learn/observations.cuh": PASSES_AND_DRAWS,
    "learn/wide/pipeline.cuh": [*PASSES[:2], *WIDE],
    "learn/functions.cuh": [*LOSSES, *NETWORK, *TENSOR],
    **{f"learn/{name}": [*MINIBATCHES, *LOSSES] for name in ("minibatches.cuh", "sums.cuh")},
    "learn/minibatches.cu": [*MINIBATCHES, ROWS_OF + "all_bits_of_an_iterations_number_draw_others", *LOSSES, RECORDED],
    "learn/loss.cuh": [BOUND, *LOSSES],
    "learn/categorical.cuh": [
        *(
            LEARN + f"gradients_are_torchs_in_float64[{name}]"
            for name in ("shared", "several heads, masks", "several heads, no mask")
        ),
        BOUND,
        LEARN + "a_number_that_is_not_finite_stops_all_steps",
    ],
    "learn/gaussian.cuh": [LOSSES[5], LEARN + "gradients_are_torchs_in_float64[squashed]"],
    "learn/update.cu": ["tests/kernels/learn/test_update_kernels.py", *STEPS, RECORDED],
    "learn/adam.cuh": [*STEPS, RECORDED, "tests/kernels/learn/test_resident.py"],
    **{
        f"learn/{name}": ["tests/kernels/learn/test_resident.py"]
        for name in ("mma/resident.cu", "mma/resident.cuh", "hopper/group_resident.cu")
    },
    "learn/initial.cu": [
        "tests/training/test_learner.py::test_one_vector_is_the_normal_numbers_of_its_agent_layer_and_part",
        "tests/training/test_learner.py::test_initial_weights_are_orthogonal_with_the_gains_of_torchs",
        "tests/training/test_learner.py::test_initial_weights_are_uniformly_distributed",
        "tests/training/test_learner.py::test_policies_layers_and_seeds_differ",
        "tests/training/test_learner.py::test_any_number_of_threads_gives_the_recorded_weights",
    ],
    "learn/exact/forward.cu": [
        TEAM,
        "tests/training/test_learner.py::test_checkpoints_go_from_one_learner_to_the_other",
    ],
    "learn/statistics.cu": [
        "tests/kernels/learn/test_statistics.py::test_statistics_are_those_of_all_rows_so_far",
        "tests/kernels/learn/test_statistics.py::test_a_rank_sums_up_its_blocks_as_one_that_has_all",
        "tests/kernels/learn/test_statistics.py::test_a_block_of_very_many_environments_is_all_of_it",
        "tests/kernels/learn/test_statistics.py::test_scales_are_one_over_the_deviation",
        "tests/kernels/learn/test_statistics.py::test_returns_are_discounted_until_their_episode_ends",
        "tests/kernels/learn/test_statistics.py::test_returns_of_a_pause_are_those_of_the_step_before_it",
    ],
    "play/perceptron.cuh": [
        *(
            PLAY + f"one_launch_has_the_bytes_of_many[{name}]"
            for name in ("time limits, three layers", "squashed, normalised")
        ),
        *(CREW + f"[{name}]" for name in ("two policies-2-False", "one policy, two groups-16-False")),
    ],
    "play/tensor.cuh": [
        PLAY + "so_it_has_where_products_are_those_of_matrix_units",
        PLAY + "so_it_has_where_products_are_those_of_matrix_units[squashed, normalised]",
        CREW + "[time limits, three layers-4-True]",
    ],
    "play/play.cuh": ["tests/kernels/play/test_play.py"],
    "train/normals.cuh": [TRAIN],
    "train/advantages.cu": [
        "tests/kernels/train/test_advantages.py",
        "tests/kernels/train/test_pauses.py::test_a_reward_that_comes_after_the_turn_is_learnt_from",
    ],
    "train/episodes.cu": [EPISODES, "tests/training/test_curves.py::test_a_team_takes_in_what_one_thread_does"],
    "train/categorical.cu": [TRAIN],
    "train/choices.cuh": [TRAIN],
    "train/sample_choices.cuh": [TRAIN],
    "train/sample_box.cuh": [TRAIN],
    "train/gaussian.cu": [TRAIN],
    "train/boxes.cuh": [TRAIN],
    "tools/draws.cu": [TRAIN],
    "train/finite.cu": [TRAIN, TOGETHER + "a_report_has_the_numbers_of_the_run"],
    "train/carry.cu": [TOGETHER + "the_last_row_becomes_the_first"],
    "train/report.cu": [
        TOGETHER + "a_report_has_the_numbers_of_the_run",
        TOGETHER + "a_teams_report_is_one_threads",
    ],
    "train/schedule.cu": [TOGETHER + "schedules_are_written_for_all_and_begin_anew_after_their_table_ends"],
    "train/shuffle.cu": [TRAIN],
    "train/opponents.cu": ["tests/training/test_pool.py"],
    "train/cipher.cuh": [TRAIN],
    "train/gather.cu": ["tests/kernels/train/test_gather.py"],
    "drive/random.cuh": [
        "tests/kernels/drive/test_random.py",
        REFUSED,
        TRAIN,
        "tests/kernels/drive/test_shared_kernels.py",
        RECORDED,
    ],
    "drive/halves.cuh": [
        "tests/kernels/drive/test_halves.py::test_numbers_round_to_the_nearest_and_ties_to_even",
        "tests/kernels/drive/test_halves.py::test_infinities_stay_and_every_nan_is_the_same_one",
        "tests/kernels/drive/test_halves.py::test_other_builds_agree",
        "tests/kernels/drive/test_halves.py::test_they_are_the_float_ones_rounded[pendulum-cpu]",
        "tests/kernels/drive/test_halves.py::test_they_are_the_float_ones_rounded[tag_continuous-cpu]",
        "tests/kernels/drive/test_shared_kernels.py",
    ],
    "drive/math.cuh": ["tests/kernels/drive/test_math.py"],
    "drive/nearest.cuh": [*NEAREST[:2], TAG_GRID, *NEAREST[2:]],
    "drive/neighbours.cuh": NEAREST,
    "drive/rows.cuh": ROWS,
    "drive/tables.cuh": TABLES,
    "drive/indices.cuh": ["tests/kernels/drive/test_indices.py", REFUSED, *BATCH, *NEAREST[:2], ROWS[3], *SANITIZED],
    "drive/backend/cpu_team.cuh": [
        *BATCH,
        *NEAREST[:2],
        f"{TRAIN}::test_the_earliest_number_that_is_not_finite_is_kept",
        EPISODES,
        *SANITIZED,
    ],
    "drive/env.cuh": [
        *BATCH,
        *ALLOWED,
        *PRINTED,
        "tests/api/test_bad_input.py::test_unchecked_wild_actions_are_read_as_the_nearest_valid",
        "tests/api/test_bad_input.py::test_a_debug_build_checks_every_index_that_an_accessor_takes",
        REFUSED,
    ],
    "drive/drive.cuh": [*BATCH, MASKS, *SANITIZED],
    "drive/batch.cuh": [*BATCH, *SANITIZED],
    "drive/step.cuh": [*BATCH, *SANITIZED],
    "drive/phases.cuh": [
        *BATCH,
        "tests/kernels/drive/test_teams.py::test_a_large_team_steps_by_given_actions_as_one_thread_does",
        *PRINTED,
        "tests/executors/test_trial.py::test_a_crash_is_an_error_that_says_where[make-null pointer]",
        *SANITIZED,
    ],
    "drive/storage/direct.cuh": [*BATCH, *SANITIZED],
    "drive/storage/shared.cuh": [*BATCH, *SANITIZED],
    "drive/groups.cuh": [*BATCH, "tests/envs/test_trajectories.py::test_on_a_cpu[rice_n [] x 3, seed 0, float32]"],
    "drive/simd.cuh": [
        *BATCH,
        MASKS,
        "tests/kernels/drive/test_simd.py::test_a_step_reads_no_action_behind_the_last",
        *SANITIZED[:1],
    ],
    "drive/backend/cpu_launch.cuh": [
        TOGETHER + "a_range_of_all_members_elements_is_one_range_of_each_member_in_it",
        *BATCH,
        "tests/api/test_new_env.py::test_uneven_syncs_are_a_failure_and_not_a_hang",
        *DIVIDED,
        *RACES[1:],
        *SANITIZED[1:],
        PLAY + "one_launch_has_the_bytes_of_many[episodes end]",
        CREW + "[two policies, normalised-4-True]",
    ],
    "drive/backend/races.cuh": [*RACES, TOGETHER + "a_teams_report_is_one_threads"],
    "drive/entries.cuh": RACES,
    "drive/backend/cpu_faults.cuh": [
        *DIVIDED,
        *WILD,
        "tests/executors/test_trial.py::test_a_crash_is_an_error_that_says_where[make-wild index]",
    ],
    "drive/faults.cuh": [
        REFUSED,
        "tests/executors/test_trial.py::test_a_crash_is_an_error_that_says_where[make-no way back]",
        "tests/executors/test_trial.py::test_a_crash_is_an_error_that_says_where[make-no end]",
        *WILD,
        "tests/api/test_bad_input.py::test_a_debug_build_of_a_right_kernel_gives_the_same_numbers",
    ],
}
