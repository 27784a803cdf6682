// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/length_count.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/parameter_group.hpp"
#include "vocabpipe/planned_trainer.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/schedule.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// How a candidate's step time is found.
enum class Evaluation : uint8_t {
    automatic,   ///< simulation if all candidates together are small enough, else search
    search,      ///< pass_times of what may be among the best, then simulation of the best
    simulation,  ///< generate, lower, simulate: with queues of collectives and lifetimes of buffers
    pass_times,  ///< time_passes() and the memory of the lists: faster, but without queues
};
[[nodiscard]] std::string_view to_string(Evaluation evaluation);
/// Throws UsageError naming the valid ones.
[[nodiscard]] Evaluation evaluation_from(std::string_view name);

/// How layers are spread over stages.
enum class LayerSplit : uint8_t {
    front,  ///< as even as integers allow, the remainder to the first stages
    back,   ///< the same, the remainder to the last stages: less memory where most is in flight
    redistributed,  ///< away from the output layer (VocabMode::redistributed)
    given,          ///< PlanOptions::layers_per_stage
};
[[nodiscard]] std::string_view to_string(LayerSplit split);

/// The model to train. PlanOptions has the length of its sequences, and its type is bf16, or that
/// of the profile.
struct PlannedModel {
    std::string name;    ///< as in load_model(), or of the file
    ModelConfig config;  ///< sizes and blocks of the layers
    std::string source;  ///< what load_model() was called with; empty: name
    /// Rows of the vocabulary that the model's file says; 0: config.vocab_size is not changed.
    int64_t file_vocab_size = 0;
    int file_mtp_layers = 0;  ///< depths of multi-token prediction that the model's file says
};
/// Names of the built-in models.
[[nodiscard]] std::string known_models();
/// A built-in model, or a Hugging Face config.json of one of model_families(). Throws UsageError
/// for a name that is neither built in nor a file, with the nearest known one; InputFileError
/// naming file, key, value and limit.
[[nodiscard]] PlannedModel load_model(const std::string& name_or_path);

/// Measured times of passes, for candidates whose stages and shards of the vocabulary are on the
/// same ranks; the other candidates are skipped.
struct PlannedPassTimes {
    std::string name;                ///< of their file, for messages
    std::vector<int> rank_of_stage;  ///< [stage]
    /// [stage][op] ns of F, B, I and W; of R, 0 where it was not measured.
    std::vector<TableCosts::OpCosts> stage_ns;
    /// [rank][op] ns of E, G, S, T, Reduce, Report and Update; -1 where it was not measured.
    std::vector<TableCosts::OpCosts> rank_ns;
};

/// What to plan. Every GPU is one rank. A list holds alternatives: every combination is a
/// candidate.
struct PlanOptions {
    PlannedModel model;  ///< the model to train
    DeviceSpec device;   ///< the GPUs to train it on
    /// Measured costs of passes and messages, scaled by layers and vocabulary rows, instead of the
    /// device's: model, sequence and microbatch are then the profiled ones (use_profile()),
    /// memory_gib must be given, and there is neither MFU nor sensitivity.
    std::optional<Profile> profile;
    /// Replaces the times of these passes from device or profile, whatever the number of layers of
    /// a stage.
    std::optional<PlannedPassTimes> pass_times;
    int gpus = 1;                ///< ranks: p t C d
    std::vector<int> tensor{1};  ///< t, ranks that share a stage
    /// C, ranks that share sequences, and exchange whichever of ContextForm is faster.
    std::vector<int> context{1};
    /// e, groups of ranks that have whole experts of a layer; e x divides t C d.
    std::vector<int> expert{1};
    std::vector<int> expert_tensor{1};  ///< x, ranks that share each expert; divides its columns
    /// p, ranks of a pipeline. Empty: gpus / (t C d).
    std::vector<int> pipeline;
    /// d, replicas. Empty: gpus / (p t C), or 1 if `pipeline` is empty, too.
    std::vector<int> data;
    int64_t seq_length = 0;  ///< s, tokens per sequence
    /// Documents by their rows, for Plan::lengths. Empty: sequences are full of tokens.
    std::vector<LengthCount> documents;
    std::vector<int64_t> micro_batch_sizes{1};  ///< sequences per microbatch
    int64_t global_batch_size = 0;              ///< sequences per step
    double memory_gib = 0;                      ///< per GPU; 0: the device's
    PlannedTrainer trainer;                     ///< how the trainer works, where trainers differ
    /// --param-group of the run, set by use_parameter_groups(). Default: every tensor is trained.
    std::vector<ParameterGroup> parameter_groups;
    std::vector<bool> frozen;  ///< ModelPartition::frozen that follows from the groups
    /// What R makes again before each backward.
    std::vector<Recompute> recompute{Recompute::none};
    /// Largest load among the ranks that share experts over their mean load, in every layer; at
    /// most the value at which all tokens go to one rank's experts. The default assumes balance;
    /// balanced real routing has 1.01 to 1.03.
    double moe_imbalance = 1;
    /// LowerOptions::receive_ahead in simulations; 0: as early as it pays and memory allows
    /// (lower_receiving_early()), as in a run.
    int receive_ahead = 0;
    std::vector<std::string> schedules;  ///< empty: every built-in family
    std::vector<VocabMode> vocab_modes;  ///< empty: every mode
    std::vector<int> chunks;  ///< empty: the family's own, and also 2 and 4 if it takes any number
    /// RuleOptions::overlap_pairs of every candidate that can have such pairs; the others are as
    /// without.
    bool overlap_pairs = false;
    /// [stage] The split of the layers, instead of those of LayerSplit; candidates with another
    /// number of stages are skipped. Empty: all splits of LayerSplit.
    std::vector<int> layers_per_stage;
    /// The stage that has the depths of multi-token prediction, with a split that is given; -1: the
    /// last one, which alone a run can have.
    int mtp_stage = -1;
    Evaluation evaluation = Evaluation::automatic;  ///< how step times are found
    /// Rows that a search proves to be the best by pass times, and simulates; at least 1.
    int best = 10;
    int threads = 0;           ///< 0: all of the machine
    int sensitivity_rows = 5;  ///< best rows evaluated again at +-10 %; 0: no sensitivity
    /// Called from time to time with a phase of the work, how much of it is done and its total as
    /// far as is known, from any thread but never concurrently.
    std::function<void(std::string_view, size_t, size_t)> progress;
    /// Asked from time to time, from any thread: true ends the work early with the rows so far.
    std::function<bool()> stop;

    /// Memory of a GPU: memory_gib, or the device's.
    [[nodiscard]] double gpu_memory_gib() const {
        return memory_gib > 0 ? memory_gib : device.memory_gib.value;
    }
    /// The same in bytes.
    [[nodiscard]] int64_t gpu_memory_bytes() const {
        return static_cast<int64_t>(gpu_memory_gib() * static_cast<double>(1 << 30));
    }
};

/// Lists every size for the GPUs, the model and the batch: t, p and e that divide them, with the d
/// that is left; x up to GPUs / experts, because fewer ranks hold as little of whole experts and
/// send less; 1, 2, 4 and 8 sequences per microbatch; and every recomputation. Of a profile, which
/// knows no tensor or expert ranks and one microbatch, only p and recomputation.
void list_all_sizes(PlanOptions& options);

/// Plans for a run with these groups: tensors that they freeze have a weight only, and passes that
/// only these need are left out. Model and profile must be set. Throws UsageError for a group
/// without tensors, and beside a profile, which knows no names of tensors.
void use_parameter_groups(PlanOptions& options, std::vector<ParameterGroup> groups);

/// Elements of the tensors that are trained.
[[nodiscard]] int64_t trained_parameter_count(const PlanOptions& options);

/// Puts a profile and what it was measured with into the options. Throws UsageError if it measured
/// no layer or no vocabulary row.
void use_profile(PlanOptions& options, Profile profile);

/// Memory of the ranks at one place of the pipeline; where they differ, of the one that needs most.
/// Counts live bytes: packing them into one arena adds a little (docs/memory.md).
struct PlannedMemory {
    int rank = 0;               ///< first of these ranks, in the world
    int64_t weights = 0;        ///< bytes
    int64_t gradients = 0;      ///< bytes
    int64_t optimizer = 0;      ///< bytes of moments and masters
    int64_t activations = 0;    ///< saved for the backward, stage boundaries, workspace
    int64_t vocabulary = 0;     ///< X, exp_logits, statistics, input gradients
    int64_t communication = 0;  ///< partial sums and reports on their way
    int64_t reserve = 0;        ///< the device's
    /// Bytes of all purposes.
    [[nodiscard]] int64_t total() const {
        return weights + gradients + optimizer + activations + vocabulary + communication + reserve;
    }
};
/// A purpose of PlannedMemory, for reports.
struct MemoryPurpose {
    std::string_view name;          ///< for people
    int64_t PlannedMemory::*bytes;  ///< where it is kept
};
[[nodiscard]] const std::array<MemoryPurpose, 7>& memory_purposes();

/// One way to train the model.
struct Candidate {
    std::string schedule;                    ///< A family of make_schedule()
    VocabMode vocab_mode = VocabMode::none;  ///< what happens to the vocabulary layers
    LayerSplit split = LayerSplit::front;    ///< of layers over stages
    int chunks = 1;                          ///< stages per rank
    int memory_limit = 0;        ///< RuleOptions::memory_limit, in chunks; 0: the family's own
    bool overlap_pairs = false;  ///< RuleOptions::overlap_pairs
    std::vector<int> layers_per_stage;      ///< [global stage]
    Mesh mesh = {};                         ///< how the GPUs divide
    int expert_tensor = 1;                  ///< x, of mesh.expert = e x ranks
    int64_t micro_batch_size = 1;           ///< sequences
    Recompute recompute = Recompute::none;  ///< before each backward
    int microbatches = 0;                   ///< per step and replica
    /// With PlannedTrainer::zero 2 and 3, where there are replicas: this stage, how long gradients
    /// and weights stay whole, and how far ahead weights are gathered; of a row, what is fastest in
    /// the memory. Else the default.
    ZeroOptions zero = {};
    ContextForm context_form = ContextForm::allgather;  ///< the faster one

    /// e, groups of ranks that have whole experts.
    [[nodiscard]] int expert_groups() const { return mesh.expert / expert_tensor; }
    /// Whether ranks share the vocabulary layers. In a pipeline of one rank none is sharded,
    /// whatever the mode.
    [[nodiscard]] bool shards_vocabulary() const {
        return mesh.pipeline > 1 && sharded(vocab_mode);
    }
};
/// "p=2 t=4": p, and t, C, d, e and x where above 1.
[[nodiscard]] std::string mesh_text(const Candidate& candidate);
/// "1f1b", "v-search k=6", "1f1b pairs": the schedule, its memory limit, if any, and overlap_pairs.
[[nodiscard]] std::string schedule_text(const Candidate& candidate);
/// "1f1b one_barrier front v=1", then mesh, microbatch size, recomputation and what ZeRO stages 2
/// and 3 do where they are not the default: "p=2 t=4", "b=2", "selective", "reshard=use". An empty
/// schedule stands for all of them.
[[nodiscard]] std::string to_string(const Candidate& candidate);

/// Results of a candidate.
struct PlanRow {
    Candidate candidate;                             ///< which one
    Evaluation evaluation = Evaluation::simulation;  ///< simulation or pass_times
    int64_t step_ns = 0;  ///< first start to last end over all ranks, optimizer step included
    double tokens_per_second = 0;      ///< of all replicas
    double mfu = 0;                    ///< FLOPs of the model's step / (step x GPUs x peak)
    double bubble = 0;                 ///< 1 - busy / step, mean over ranks
    PlannedMemory worst;               ///< rank that needs most memory
    int64_t spare_bytes = 0;           ///< memory - worst.total(); negative: does not fit
    std::vector<PlannedMemory> ranks;  ///< [pipeline rank]
    /// Whether it fits into the memory of every GPU.
    [[nodiscard]] bool fits() const { return spare_bytes >= 0; }
};

/// The effect of one efficiency that is 10 % lower or higher; the order of passes stays.
struct Sensitivity {
    std::string_view figure;       ///< key of the hardware file; or "moe_imbalance"
    Basis basis = Basis::assumed;  ///< how well the figure is known
    double factor = 1;             ///< 0.9 or 1.1; for moe_imbalance its value
    int64_t step_ns = 0;           ///< of the row that is best without the change
    size_t best_row = 0;           ///< index of the best row with the change; 0: unchanged
    int64_t best_step_ns = 0;      ///< of that row, with the change
};

/// What became of the possible candidates.
struct PlanSearch {
    size_t candidates = 0;  ///< all of them
    size_t slower = 0;      ///< not evaluated: a lower bound of the step exceeds the best rows'
    size_t too_large = 0;   ///< not evaluated: a lower bound of the memory exceeds a GPU's
    size_t timed = 0;       ///< by pass times
    size_t simulated = 0;   ///< those of a search were timed, too
    bool complete = true;   ///< false: PlanOptions::stop ended the work early
};

/// A change that makes the nearest row of a plan need less memory.
struct Remedy {
    std::string flags;  ///< of vocabpipe plan: "--gpus 32"
    PlanRow row;        ///< the nearest row with this change, planned
};

/// Tokens with a label per second of a row that trains on PlanOptions::documents, in three ways.
/// Documents longer than a sequence are cut.
struct LengthPlan {
    /// Each document in a sequence of seq_length, the rest of which is padding.
    double padded = 0;
    /// Full sequences of whole documents, whose tokens see their own document only and take the
    /// time of that. What no document fills is left out (docs/packing.md).
    double packed = 0;
    /// Each document in the shortest of `lengths` that holds it: a microbatch has sequences of one
    /// length, a step has the lengths in their shares, and order_microbatches() orders them.
    double by_length = 0;
    std::vector<int64_t> lengths;           ///< ascending, as choose_length_buckets() chooses them
    std::vector<LengthCount> microbatches;  ///< of a step and replica, by length, ascending
};

/// Rows that Plan::lengths has at most.
inline constexpr size_t kLengthRows = 5;

/// Candidates, best first: all, or those that a search evaluated.
struct Plan {
    PlanOptions options;                             ///< as given
    Evaluation evaluation = Evaluation::simulation;  ///< method that was used
    PlanSearch search;                               ///< how many were evaluated
    /// Those that fit first, of these the simulated ones, then by step time; then those that do
    /// not fit by the memory that they lack. Of a search, the first PlanOptions::best are the best.
    std::vector<PlanRow> rows;
    std::vector<std::pair<Candidate, std::string>> skipped;  ///< and why
    /// [row] of the first rows, at most kLengthRows; empty without PlanOptions::documents.
    std::vector<LengthPlan> lengths;
    std::vector<Sensitivity> sensitivity;  ///< of the best row; empty without sensitivity
    /// The same for other values of PlanOptions::moe_imbalance: 1.5 and the worst case of the best
    /// row. Empty if that shares no experts.
    std::vector<Sensitivity> imbalance;
    /// Where no row fits, changes that need less memory; set by the caller, with find_remedies().
    std::vector<Remedy> remedies;
};

/// Whether some group of the axis communicates between nodes of the device, with ranks placed as
/// mpirun does, in order of their numbers. For Axis::pipeline: some two neighbours of a pipeline.
[[nodiscard]] bool spans_nodes(const DeviceSpec& device, const Mesh& mesh, Axis axis);

/// Evaluates every mesh x microbatch size x recomputation x schedule x vocabulary mode x layer
/// split x chunks, or with a search those that may be among the best. Rows and their order depend
/// only on the options, not on threads. Throws UsageError for impossible options or if no candidate
/// is possible.
[[nodiscard]] Plan make_plan(const PlanOptions& options);

/// Changes of one option each (and of three together if none of them suffices) with which the
/// plan's first row needs less memory, tried one after the other: more recomputation, smaller
/// microbatches, more tensor, context and expert ranks, more ranks for each expert, more GPUs.
/// Empty if the first row fits, and where no change is possible.
[[nodiscard]] std::vector<Remedy> find_remedies(const Plan& plan);

/// Share of the memory below which spare memory is marked: published runs took up to 3.7 % more
/// than planned (docs/planning-accuracy.md).
inline constexpr double kTightShare = 0.05;
/// Whether the row fits with less than kTightShare of the memory to spare.
[[nodiscard]] inline bool is_tight(const PlanOptions& options, const PlanRow& row) {
    const auto all = static_cast<double>(options.gpu_memory_bytes());
    return row.fits() && static_cast<double>(row.spare_bytes) < kTightShare * all;
}

/// The best rows with and without sharded vocabulary layers.
struct VocabularyGain {
    size_t with = 0;          ///< index of the best row whose vocabulary layers are sharded
    size_t without = 0;       ///< of the best row with whole ones; the nearest if none fits
    double step_ratio = 1;    ///< step time with over without
    double memory_ratio = 1;  ///< memory of the fullest rank, with over without
};
/// What vocabulary parallelism changes. None without a row of both kinds that have several ranks of
/// a pipeline, or if none with sharded layers fits.
[[nodiscard]] std::optional<VocabularyGain> vocabulary_gain(const Plan& plan);

/// A flag of train_gpt.
struct TrainFlag {
    std::string name;   ///< "--schedule"
    std::string value;  ///< empty: a switch
};
/// What trains a row with train_gpt: all flags but the data and the length of the run. The order of
/// passes is made for the costs that the run measures (--schedule-costs auto).
[[nodiscard]] std::vector<TrainFlag> train_flags_of(const PlanOptions& options,
                                                    const Candidate& candidate);
/// The same as one line for a shell: mpirun on as many ranks, with --data-path PREFIX. Where ranks
/// are on several nodes, HOSTS is Open MPI's file of hosts.
[[nodiscard]] std::string train_command(const PlanOptions& options, const Candidate& candidate);

/// For a terminal: what is missing if nothing fits, the options, the best `rows` rows as a table,
/// what vocabulary parallelism changes, the command of the row `command` (an index of rows; none:
/// of the first if it fits), what was skipped, and the sensitivity.
[[nodiscard]] std::string plan_text(const Plan& plan, size_t rows,
                                    std::optional<size_t> command = {});
/// The whole plan (docs/planning.md, "JSON output").
[[nodiscard]] std::string plan_json(const Plan& plan);
/// One self-contained page: a chart of the rows with filters, a table that sorts by click,
/// timelines of the best rows, bars for memory by purpose.
[[nodiscard]] std::string plan_html(const Plan& plan);

}  // namespace vocabpipe
