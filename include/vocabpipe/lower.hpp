// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/cost_model.hpp"
#include "vocabpipe/lowered.hpp"
#include "vocabpipe/program.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/zero_options.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace vocabpipe {

/// Bytes that one stage needs per microbatch.
struct StageBytes {
    int64_t saved = 0;               ///< F to B (or W)
    int64_t recomputed = 0;          ///< R to B (or W), and scratch of F; without R: F to B (or W)
    int64_t for_weight = 0;          ///< I to W
    int64_t forward_workspace = 0;   ///< of F and R
    int64_t backward_workspace = 0;  ///< of B
    int64_t input_gradient_workspace = 0;   ///< of I
    int64_t weight_gradient_workspace = 0;  ///< of W
};

/// A tensor that one stage makes and later stages read, where stages are a graph. Its gradient goes
/// the way back: from the last reader to the one before, which adds its own, and at last to the
/// maker. So it is added up in the same order wherever the stages are.
struct StageTensor {
    int maker = 0;             ///< global stage
    std::vector<int> readers;  ///< later global stages, ascending, each once
    int64_t bytes = 0;         ///< per microbatch
};

/// A weight that several layers of a graph share. Each use has weights and a gradient of its own;
/// the gradients are added up once, at the end of the step, in the order of uses.
struct SharedWeight {
    /// Where it is a parameter.
    struct Use {
        int stage = 0;         ///< global stage
        size_t parameter = 0;  ///< index among StageModule::parameters()
    };
    int64_t bytes = 0;      ///< of its gradient, fp32
    std::vector<Use> uses;  ///< two or more, by layer
};

/// Bytes that the output shard of one rank needs per microbatch.
struct ShardBytes {
    int64_t exp_logits = 0;       ///< N * v * size of the run's type, and the logits it keeps
    int64_t score_workspace = 0;  ///< scratch of S
    int64_t weight_gradient_workspace = 0;  ///< scratch of T
};

/// Weights of one rank whose gradients are added up over an axis together, and of which each member
/// updates a part (ZeRO, Rajbhandari et al., SC 2020). Elements count within the bucket's memory,
/// which is one contiguous range for the gradients and one for the weights.
struct GradientBucket {
    /// Whose weights they are.
    enum class Of : uint8_t { stage, input, output };
    Of of = Of::stage;       ///< which part of the model
    int stage = 0;           ///< global stage, where `of` is stage
    Axis axis = Axis::data;  ///< over which the gradients are added up
    /// Mesh::size_of(axis) + 1 entries, ascending: member i updates elements [first[i], first[i +
    /// 1]).
    std::vector<int64_t> first;
    /// ZeRO stage 2: between the passes that write the gradients a member keeps its own part alone.
    /// A stage's buckets all have the same value, and vocabulary shards false.
    bool shards_gradients = false;
    /// ZeRO stage 3: between the passes that read the weights a member keeps its own part alone.
    /// Vocabulary shards have false.
    bool shards_weights = false;
};

/// The sizes of a microbatch that follow from the length of its sequences.
struct LengthSizes {
    int64_t tokens = 0;              ///< as StepSizes::tokens
    std::vector<StageBytes> stages;  ///< [global stage]
    std::vector<ShardBytes> shards;  ///< [rank]
};

/// Sizes of everything that moves or lives in a step: the model's side of the memory plan.
struct StepSizes {
    int64_t tokens = 0;  ///< N, tokens per microbatch of the longest sequences, of one context rank
    /// 1 + D: rows of the last stage's output for each token. Those of the next token come first,
    /// then those of each depth of multi-token prediction; tensor ranks have each their own so.
    int64_t predicted_tokens = 1;
    int64_t hidden = 0;              ///< h
    DType dtype = DType::fp32;       ///< of activations, boundaries and exp_logits
    std::vector<StageBytes> stages;  ///< [global stage] for N tokens
    std::vector<ShardBytes> shards;  ///< [rank] for N tokens
    /// What the stages of a graph give each other. Stage 0 still reads the embedded tokens, if the
    /// schedule has an input layer, and the last stage makes X, if it has an output layer; without
    /// one the last stage's backward begins from its own loss. None: a chain, in which each stage
    /// reads the output of the one before, (N / t, h).
    std::optional<std::vector<StageTensor>> stage_tensors = {};
    std::vector<SharedWeight> shared_weights = {};  ///< of layers; empty: none
    /// The same for shorter sequences; empty: all microbatches have N tokens.
    std::vector<LengthSizes> shorter;
    /// [microbatch] k above 0: its sizes are shorter[k - 1]; 0: it has N tokens. Empty: 0 for all.
    std::vector<int> length_of_microbatch;
    bool tied = false;  ///< input and output layer share their weight
    /// Whether W reads weights, so that those that ranks share are gathered for it, too. Default:
    /// the library does not know what stages do.
    bool weight_pass_reads_weights = true;
    /// Per rank, for norms and loss at the end of the step; 0: gradients only, no optimizer step.
    int64_t report_bytes = 0;
    int replicas = 1;  ///< pipelines that train side by side (Mesh::data)
    /// C, ranks that share the sequences of a replica (Mesh::context); `tokens` are those of one.
    int context = 1;
    /// t, ranks that share a stage (Mesh::tensor). Each has tokens / t rows of a boundary, rank i
    /// from row tokens i / t on. Divides the tokens.
    int tensor = 1;
    /// e, ranks that share the experts of a layer (Mesh::expert).
    int expert = 1;
    /// [global stage] Whether the stage has a layer with experts, so that its passes communicate
    /// with the expert ranks; empty: none has.
    std::vector<bool> has_experts;
    /// Gradients that ranks add up: [pipeline rank][bucket]; empty for one replica without tensor
    /// ranks.
    std::vector<std::vector<GradientBucket>> buckets;
    /// How the ranks of the world divide; `pipeline`: ranks of the schedule.
    [[nodiscard]] Mesh mesh(int pipeline) const {
        return {.pipeline = pipeline,
                .data = replicas,
                .tensor = tensor,
                .expert = expert,
                .context = context};
    }
    /// Whether passes of any stage wait for tensor, context or expert ranks.
    [[nodiscard]] bool exchanges() const {
        return tensor > 1 || context > 1 ||
               (expert > 1 && std::ranges::find(has_experts, true) != has_experts.end());
    }
    /// Rows of a boundary of the longest sequences on one rank.
    [[nodiscard]] int64_t boundary_rows() const { return tokens / tensor; }
    /// Rows of X, which are those of the logits, of the longest sequences; of all tensor ranks.
    [[nodiscard]] int64_t output_rows() const { return tokens * predicted_tokens; }
    /// Entry of length_of_microbatch.
    [[nodiscard]] size_t length_of(int microbatch) const {
        return length_of_microbatch.empty()
                   ? 0
                   : static_cast<size_t>(length_of_microbatch[static_cast<size_t>(microbatch)]);
    }
    /// Tokens of a microbatch, of one context rank.
    [[nodiscard]] int64_t tokens_of(int microbatch) const {
        const size_t length = length_of(microbatch);
        return length == 0 ? tokens : shorter[length - 1].tokens;
    }

    /// Columns of the statistics: kStatistics, and those that records need
    /// (kernels::statistics_columns()).
    int64_t statistics = kStatistics;
    /// fp32 per token that combine_softmax makes: kFactors, and two where the loss depends on the
    /// entropy.
    int64_t factors = kFactors;
    /// Whether exp_logits keep the logits in fp32 as well, which combine_softmax reads: for ranks
    /// of labels.
    bool keeps_logits = false;

    static constexpr int64_t kStatistics =
        4;                                  ///< fp32 per token and shard: max, sum, label, sum of z
    static constexpr int64_t kFactors = 2;  ///< fp32 per token: softmax and label factor
};

/// LowerOptions::receive_ahead for messages that travel as soon as they are made, as time_passes()
/// assumes; the receiver's buffer lives from then on.
inline constexpr int kAsSoonAsSent = std::numeric_limits<int>::max();

/// How the partial sums of vocabulary shards are added up.
enum class Reductions : uint8_t {
    /// In rank order, built from messages: the same bits on every transport.
    ordered,
    /// By the transport's own reduction, in the partials' type: fewer and faster operations on
    /// GPUs, but bits depend on the transport and the number of ranks. Falls back to `ordered`
    /// where the root owns no rows itself.
    native,
};

/// Options of lower() and lower_world().
struct LowerOptions {
    /// Point-to-point receives are posted this many passes before the pass that uses them: 1 hides
    /// the transfer behind one pass and keeps the buffer no longer. Recomputations do not count as
    /// passes.
    int receive_ahead = 1;
    /// Default: the same bits on every transport.
    Reductions reductions = Reductions::ordered;
    /// Pieces of rows (TileMap::even) in which boundaries between stages and the broadcast of X are
    /// sent: each piece as soon as it is made, and the pass that uses them begins with the first.
    /// With two barriers the sum of the input gradient then begins while T makes the weight
    /// gradient. Default 1, whole messages, because every piece costs a product and a message. At
    /// most kMostPieces.
    int pieces = 1;
    /// Elements of a gradient bucket that are added up at a time, at least 1; a bucket of twice as
    /// many or more is cut. There is memory for two pieces at a time. The default is long enough
    /// for any network and for GPUs; plan_step() of a StepCluster takes kBucketPieceOfHosts for
    /// hosts.
    int64_t bucket_piece = int64_t{1} << 23;
    /// How sharded weights are gathered, and sharded gradients added up; ZeroOptions::stage is not
    /// read, the buckets of StepSizes say what is sharded.
    ZeroOptions zero = {};
    /// Microbatches of shorter sequences take the order and the places in memory that the longest
    /// would have, so that the arena is exactly that of a step whose microbatches all have the
    /// longest. `costs` should then be those of the longest. Default: order and places of their
    /// own, which make the shorter step but now and then take a larger arena.
    bool as_longest = false;
    /// The passes of an overlapped pair (Pass::with_next) run on two lanes of their rank, so that
    /// one computes while the other waits for its tensor, context or expert ranks. Buffers of both
    /// are then there at once. Pairs of one stage whose weights or gradients ranks share
    /// (ZeroOptions) run one after the other all the same. Default: as on devices with streams,
    /// which have one lane for passes; plan_step() of a StepCluster sets it for hosts whose passes
    /// exchange something (StepSizes::exchanges()).
    bool overlap_pairs = false;
};

/// Largest LowerOptions::pieces.
inline constexpr int kMostPieces = 64;
/// LowerOptions::bucket_piece where the core that computes also adds up: a piece of 1 MiB is still
/// in a cache when its blocks have arrived.
inline constexpr int64_t kBucketPieceOfHosts = int64_t{1} << 18;

/// Programs of a world, the ranks of sizes.mesh(schedule.ranks) as Mesh numbers them; `costs` are
/// asked for ranks of the world. Infers every message and collective from the passes, gives them
/// one global order by list-scheduling under `costs` (communication order included), plans the
/// memory, and proves the result free of deadlock. Takes the time and memory of one pipeline,
/// except for the hash, which covers every rank's program. Throws ScheduleError if the schedule is
/// invalid, UsageError if sizes, costs and schedule do not fit.
[[nodiscard]] Lowered lower_world(const Schedule& schedule, const StepSizes& sizes,
                                  const CostModel& costs, const LowerOptions& options = {});

/// The same as one program per rank of the world; for small worlds.
[[nodiscard]] std::vector<Program> lower(const Schedule& schedule, const StepSizes& sizes,
                                         const CostModel& costs, const LowerOptions& options = {});

/// Proof that the programs finish whatever the timing, even if every communication is a rendezvous
/// that blocks its lane: the graph of all actions (participants of one communication joined), lane
/// orders and edges is acyclic, participants agree on kind, group and sizes. Empty if proven, else
/// the reason.
[[nodiscard]] std::optional<std::string> find_deadlock(const std::vector<Program>& programs);

/// The same for a world, proven on one pipeline: slices are copies of it, so every edge between
/// actions of the world maps to an edge of the pipeline's graph, and a cycle would be a cycle
/// there. For communication between slices all participants are checked.
[[nodiscard]] std::optional<std::string> find_deadlock(const Lowered& world);

}  // namespace vocabpipe
