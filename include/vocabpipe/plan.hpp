// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/device_spec.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/transformer_shape.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace vocabpipe {

/// How a candidate's step is found.
enum class Evaluation : uint8_t {
    automatic,   ///< simulation while all candidates together are small enough, else pass_times
    simulation,  ///< generate, lower, simulate: collectives queue, buffers live as they will
    pass_times,  ///< time_passes() and the memory of the lists: faster, knows no queues
};
[[nodiscard]] std::string_view to_string(Evaluation evaluation);
/// Throws UsageError naming the valid ones.
[[nodiscard]] Evaluation evaluation_from(std::string_view name);

/// How layers are spread over stages.
enum class LayerSplit : uint8_t {
    front,          ///< as even as integers allow, what is left over to the first stages
    back,           ///< the same, left over to the last stages: less memory where most is in flight
    redistributed,  ///< away from the output layer (VocabMode::redistributed)
};
[[nodiscard]] std::string_view to_string(LayerSplit split);

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

/// What is to be planned. Every GPU is one rank. A list is a choice: every combination is a
/// candidate.
struct PlanOptions {
    TransformerShape model;  ///< what is to be trained
    DeviceSpec device;       ///< on which GPUs
    /// Measured costs of passes and messages, scaled by layers and vocabulary rows, instead of the
    /// device's: model, sequence and microbatch are then those that were profiled
    /// (use_profile()), memory_gib must be given, and there is neither MFU nor sensitivity.
    std::optional<Profile> profile;
    /// Instead of what device or profile say of these passes. Whatever the layers of a stage.
    std::optional<PlannedPassTimes> pass_times;
    int gpus = 1;                ///< ranks: p t d
    std::vector<int> tensor{1};  ///< t, ranks that share a stage
    std::vector<int> expert{1};  ///< e, ranks that share the experts of a layer; divides t d
    /// p, ranks of a pipeline. Empty: gpus / (t d).
    std::vector<int> pipeline;
    /// d, replicas. Empty: gpus / (p t), or 1 if `pipeline` is empty, too.
    std::vector<int> data;
    int64_t seq_length = 0;                     ///< s, tokens per sequence
    std::vector<int64_t> micro_batch_sizes{1};  ///< sequences per microbatch
    int64_t global_batch_size = 0;              ///< sequences per step
    double memory_gib = 0;                      ///< per GPU; 0: the device's
    /// Before each backward of a candidate.
    std::vector<Recompute> recompute{Recompute::none};
    /// Greatest load of the ranks that share experts over their mean, in every layer; all tokens to
    /// one rank's experts at most. Assumed: real routing has 1.01 to 1.03 where it is balanced.
    double moe_imbalance = 1;
    /// LowerOptions::receive_ahead of what is simulated; 0: as early as it pays and memory allows
    /// (lower_receiving_early()), which is what a run does.
    int receive_ahead = 0;
    std::vector<std::string> schedules;  ///< empty: every built-in family
    std::vector<VocabMode> vocab_modes;  ///< empty: every mode
    std::vector<int> chunks;  ///< empty: the family's own, and 2 and 4 where it takes any number
    Evaluation evaluation = Evaluation::automatic;  ///< how step times are found
    int threads = 0;                                ///< 0: as many as the machine runs at once
    int sensitivity_rows = 5;  ///< best rows evaluated again at +-10 %; 0: no sensitivity
    /// Called now and then, from any thread but never twice at once, with candidates done and all.
    std::function<void(size_t, size_t)> progress;
};

/// Puts a profile and what it was measured with into the options. Throws UsageError if it measured
/// no layer or no vocabulary row.
void use_profile(PlanOptions& options, Profile profile);

/// Bytes of the ranks at one place of the pipeline: of the one that needs most, where they differ.
/// Live bytes: packing them into one arena adds a little (docs/memory.md).
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
    int memory_limit = 0;  ///< RuleOptions::memory_limit, in chunks; 0: the family's own
    std::vector<int> layers_per_stage;      ///< [global stage]
    Mesh mesh = {};                         ///< how the GPUs divide
    int64_t micro_batch_size = 1;           ///< sequences
    Recompute recompute = Recompute::none;  ///< before each backward
    int microbatches = 0;                   ///< per step and replica
};
/// "p=2 t=4 d=2 e=1": those above 1, but for p
[[nodiscard]] std::string mesh_text(const Mesh& mesh);
/// "1f1b", "v-search k=6": the schedule and its memory limit, if any.
[[nodiscard]] std::string schedule_text(const Candidate& candidate);
/// "1f1b one_barrier front v=1", and what is not usual of mesh, microbatch and recomputation: "p=2
/// t=4", "b=2", "selective". Without a schedule: of all of them.
[[nodiscard]] std::string to_string(const Candidate& candidate);

/// What a candidate comes to.
struct PlanRow {
    Candidate candidate;  ///< which one
    int64_t step_ns = 0;  ///< first start to last end over all ranks, optimizer step included
    double tokens_per_second = 0;  ///< of all replicas
    double mfu = 0;                ///< 3 x forward FLOPs of the model / (step x GPUs x peak)
    double bubble = 0;             ///< 1 - busy / step, mean over ranks
    PlannedMemory worst;           ///< of the rank that needs most
    int64_t spare_bytes = 0;       ///< memory - worst.total(); negative: does not fit by as much
    std::vector<PlannedMemory> ranks;  ///< [pipeline rank]
    /// Into the memory of every GPU.
    [[nodiscard]] bool fits() const { return spare_bytes >= 0; }
};

/// What one efficiency being 10 % lower or higher would change; the order of passes stays.
struct Sensitivity {
    std::string_view figure;       ///< key of the hardware file; or "moe_imbalance"
    Basis basis = Basis::assumed;  ///< how well the figure is known
    double factor = 1;             ///< 0.9 or 1.1; of moe_imbalance its value
    int64_t step_ns = 0;           ///< of the row that is best now
    size_t best_row = 0;           ///< index of the row that is best then; 0: the winner stays
    int64_t best_step_ns = 0;      ///< of that row
};

/// All candidates, best first.
struct Plan {
    PlanOptions options;                             ///< as given
    Evaluation evaluation = Evaluation::simulation;  ///< what was done
    std::vector<PlanRow> rows;                       ///< those that fit first, then by step time
    std::vector<std::pair<Candidate, std::string>> skipped;  ///< and why
    std::vector<Sensitivity> sensitivity;  ///< of the best row; empty without sensitivity
    /// The same of other values of PlanOptions::moe_imbalance: 1.5 and the worst that the best row
    /// can have. Empty where it shares no experts.
    std::vector<Sensitivity> imbalance;
};

/// Whether groups of an axis that a mesh has communicate between nodes of the device, not inside
/// of one; where ranks are placed as mpirun does, neighbours together. Of Axis::pipeline: any two
/// neighbours.
[[nodiscard]] bool spans_nodes(const DeviceSpec& device, const Mesh& mesh, Axis axis);

/// Evaluates every mesh x microbatch size x recomputation x schedule x vocabulary mode x layer
/// split x chunks. The order of rows depends on
/// the options alone, not on threads. Throws UsageError for impossible options or if no candidate
/// is possible.
[[nodiscard]] Plan make_plan(const PlanOptions& options);

/// The options and the table, for a terminal: the best `rows` rows, the sensitivity, what was
/// skipped.
[[nodiscard]] std::string plan_text(const Plan& plan, size_t rows);
/// Everything (docs/planning.md, "JSON output").
[[nodiscard]] std::string plan_json(const Plan& plan);
/// One self-contained page: a table that sorts by click, bars for memory by purpose.
[[nodiscard]] std::string plan_html(const Plan& plan);

}  // namespace vocabpipe
