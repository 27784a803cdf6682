// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "vocabpipe/context_exchange.hpp"
#include "vocabpipe/device.hpp"
#include "vocabpipe/lower.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/model_config.hpp"
#include "vocabpipe/modules.hpp"
#include "vocabpipe/profile.hpp"
#include "vocabpipe/recompute.hpp"
#include "vocabpipe/schedule.hpp"
#include "vocabpipe/token_loss.hpp"
#include "vocabpipe/token_record.hpp"
#include "vocabpipe/trained_parts.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace vocabpipe {

class ParameterStore;
class RotaryTables;
class RouterSums;
class TransformerStage;

/// How a model is cut: everything the memory plan needs besides the schedule.
struct ModelPartition {
    std::vector<int> layers_per_stage;  ///< their sum is num_layers
    int64_t micro_batch_size = 1;       ///< sequences
    /// Lengths that the sequences of a microbatch may have besides ModelConfig::seq_length, in
    /// descending order; those of context ranks before they are cut. Empty: none.
    std::vector<int64_t> shorter_lengths = {};
    int replicas = 1;    ///< Mesh::data
    int zero_stage = 1;  ///< ZeroOptions::stage
    int context = 1;     ///< Mesh::context: ranks that share the sequences of a replica
    /// How context ranks exchange what attention needs, and in how many panels of heads.
    ContextExchange context_exchange = {};
    int tensor = 1;  ///< Mesh::tensor: ranks that share a stage and the vocabulary rows of a place
    int expert = 1;  ///< Mesh::expert: ranks that share the experts of a layer
    int expert_tensor = 1;                  ///< x, of these the neighbors that share each expert
    double moe_row_factor = kMoeRowFactor;  ///< memory of expert rows, where `expert` is above 1
    ExpertPieces expert_pieces = {};        ///< of the rows that expert ranks exchange
    int tensor_pieces = 1;                  ///< of each rank's rows that tensor ranks exchange
    int threads_per_rank = 1;               ///< attention needs a workspace per thread
    Recompute recompute = Recompute::none;  ///< what R makes again
    bool optimizer = true;                  ///< false: gradients only (tests)
    bool training = true;                   ///< false: no gradients and moments either
    TokenRecordOptions records = {};        ///< what the output layer makes for the caller
    /// Replaces the cross-entropy in training; null: it does not. Excludes label smoothing and
    /// z-loss.
    std::shared_ptr<const TokenLoss> loss = nullptr;
    bool hidden_sums = false;  ///< evaluation also adds up hidden states, for data selection
    /// [logical parameter] Whether it is frozen: it keeps its values and has neither gradient nor
    /// moments nor, in bf16 runs, an fp32 master. Empty: none is.
    std::vector<bool> frozen = {};
    /// Whether a logical parameter is frozen.
    [[nodiscard]] bool is_frozen(int id) const {
        return !frozen.empty() && frozen[static_cast<size_t>(id)];
    }
    /// Records that the output layer makes: the loss, those of the caller, and what `loss` reads.
    /// Where the caller asks for any, all of them are stored.
    [[nodiscard]] TokenRecords made_records() const {
        const TokenRecords made = records.columns | TokenRecords{TokenRecord::loss};
        return loss ? made | loss->reads() : made;
    }
    /// Operators of the device, which decide the sizes of workspaces; null: the host's.
    const kernels::Operators* operators = nullptr;
    /// Tokens per microbatch of the longest sequences, of one context rank.
    [[nodiscard]] int64_t tokens(const ModelConfig& config) const {
        return tokens(config.seq_length);
    }
    /// The same for sequences of `seq_length` tokens.
    [[nodiscard]] int64_t tokens(int64_t seq_length) const {
        return micro_batch_size * seq_length / context;
    }
    /// [global stage] Bytes of your own stages (ModelRank::replace_stage); empty: the model's.
    std::vector<StageBytes> stage_bytes = {};

    /// How the ranks of the world divide; `pipeline`: ranks of the schedule.
    [[nodiscard]] Mesh mesh(int pipeline) const {
        return {.pipeline = pipeline,
                .data = replicas,
                .tensor = tensor,
                .expert = expert,
                .context = context};
    }
};

/// Doubles that every rank reports at the end of a step: a sum of squares per logical parameter,
/// then loss and a request to stop, then the loss of each depth of multi-token prediction, then
/// Operators::sum_routing() of every layer with experts.
struct ReportEntries {
    int64_t squares = 0;  ///< logical parameters
    int64_t routers = 0;  ///< entries of all layers with experts; 0 on ranks without the layer
    int64_t depths = 0;   ///< depths of multi-token prediction
    /// The first entry of depths.
    [[nodiscard]] int64_t first_depth() const { return squares + 2; }
    /// The first entry of routers.
    [[nodiscard]] int64_t first_router() const { return first_depth() + depths; }
    /// Entries of one rank.
    [[nodiscard]] int64_t count() const { return first_router() + routers; }
    /// Bytes of one rank's report.
    [[nodiscard]] int64_t bytes() const { return count() * static_cast<int64_t>(sizeof(double)); }
};
[[nodiscard]] ReportEntries report_entries(const ModelConfig& config);

/// Which parts of the model ModelPartition::frozen leaves to be trained.
[[nodiscard]] TrainedParts trained_parts(const ModelConfig& config,
                                         const ModelPartition& partition);

/// The model's side of the memory plan, computed from the configuration only. Every microbatch has
/// the longest sequences until StepSizes::length_of_microbatch is set. Throws UsageError for
/// ModelPartition::frozen that the model cannot have: of another length, of all parameters, or of
/// one of two whose gradients one operator makes (gamma and beta of a LayerNorm); and for
/// ModelPartition::shorter_lengths that the ranks cannot share or the positions do not allow.
[[nodiscard]] StepSizes step_sizes(const ModelConfig& config, const ModelPartition& partition,
                                   const Schedule& schedule);

/// Weights (and rotary positions, and the records of a step), gradients and optimizer state of one
/// rank of the world, computed from the configuration only.
[[nodiscard]] PersistentBytes persistent_bytes(const ModelConfig& config,
                                               const ModelPartition& partition,
                                               const Schedule& schedule, int rank);

/// The part of it that a checkpoint stores: weights and optimizer state, a tied weight once.
[[nodiscard]] uint64_t stored_bytes(const ModelConfig& config, const ModelPartition& partition,
                                    const Schedule& schedule, int rank);

/// One rank's part of the model.
class ModelRank {
public:
    /// `rank`: of the world, as Mesh numbers them. The device must outlive it.
    ModelRank(const ModelConfig& config, const ModelPartition& partition, const Schedule& schedule,
              int rank, Device& device);
    ~ModelRank();

    /// Pointers into this object, and `step` (null: gradients only).
    [[nodiscard]] RankModules modules(StepModule* step = nullptr);
    /// Replaces the output layer on this rank's rows, for example by another loss; modules() and
    /// output() return `layer` from now on. It has the parameters of the layer that it replaces,
    /// which stays alive so that `layer` may use it. Throws UsageError if the rank has no output
    /// rows.
    void replace_output(std::unique_ptr<OutputLayer> layer);
    /// Replaces a stage of this rank; modules() returns `module` from now on.
    /// ModelPartition::stage_bytes must give the bytes of the stages of all ranks. Its parameters
    /// are its own: neither parameters() nor the optimizer knows them. Throws UsageError for a
    /// stage of another rank, and for one whose gradients ranks share (zero_stage above 1).
    void replace_stage(int stage, std::unique_ptr<StageModule> module);
    /// Weights from the seed, the same for every number of ranks.
    void initialise(Context& ctx, uint64_t seed);
    /// The same for adapters alone (LoraConfig), where a loaded model may have none.
    void initialise_adapters(Context& ctx, uint64_t seed);
    /// Device that holds the tensors.
    [[nodiscard]] Device& device() { return device_; }
    /// Configuration of the whole model.
    [[nodiscard]] const ModelConfig& config() const { return config_; }
    /// All parameters of this rank, by stage, then the input layer's and the output layer's rows.
    [[nodiscard]] std::span<Parameter> parameters();
    [[nodiscard]] InputLayer* input() { return input_.get(); }  ///< null without input rows
    /// Null without output rows.
    [[nodiscard]] OutputLayer* output() {
        return outputs_.empty() ? nullptr : outputs_.back().get();
    }
    /// StageModule::losses() of this rank's stages that have any.
    [[nodiscard]] std::vector<std::span<const double>> stage_losses() const;
    /// StageModule::result() of the stage of this rank that has it; empty: none.
    [[nodiscard]] ConstTensor stage_result(const std::string& name) const;
    /// How the ranks of the world divide into pipelines.
    [[nodiscard]] const Mesh& mesh() const { return mesh_; }
    /// Memory of StepSizes::buckets[pipeline rank][index].
    [[nodiscard]] RankBucket bucket(size_t index) const;
    /// As StepModule::place_weights().
    void place_weights(size_t bucket, Bytes whole);
    /// As StepModule::place_gradients().
    void place_gradients(size_t bucket, Bytes whole);
    /// Sums of Operators::sum_routing() over the last step on this rank, in the device's memory;
    /// empty for a layer without experts or of another rank, and without training.
    [[nodiscard]] std::span<const double> router_sums(int layer) const;

private:
    /// Null where it lives elsewhere.
    [[nodiscard]] StageModule* stage(size_t index) const;

    friend struct ModelRankInternals;  ///< src/model/model_rank_internals.hpp

    ModelConfig config_;
    std::vector<bool> frozen_;  ///< ModelPartition::frozen
    Mesh mesh_;
    Device& device_;
    std::unique_ptr<ParameterStore> store_;
    std::unique_ptr<RotaryTables> rotary_;                ///< for all stages
    std::unique_ptr<RouterSums> router_sums_;             ///< of experts in training, or null
    std::vector<std::unique_ptr<StageModule>> stages_;    ///< [global stage], null elsewhere
    std::vector<std::unique_ptr<StageModule>> replaced_;  ///< [global stage], mostly null
    std::unique_ptr<InputLayer> input_;
    std::vector<std::unique_ptr<OutputLayer>> outputs_;  ///< the last one counts
};

}  // namespace vocabpipe
