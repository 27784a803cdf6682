// SPDX-License-Identifier: Apache-2.0
// Sizes and modules of a rank come from the same lists (stages_of(), held_parameters()): the memory
// plan needs no device, and the modules then find the parameters in the planned order.
#include "vocabpipe/model_rank.hpp"

#include "kernels/host/operators.hpp"
#include "src/model/blocks/layer_options.hpp"
#include "src/model/check_graph_model.hpp"
#include "src/model/check_lengths.hpp"
#include "src/model/check_predicted_tokens.hpp"
#include "src/model/frozen_parameters.hpp"
#include "src/model/graph_stage.hpp"
#include "src/model/input_layer.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/model/output_layer.hpp"
#include "src/model/parameter_store.hpp"
#include "src/model/parameters.hpp"
#include "src/model/predicting_stage.hpp"
#include "src/model/rotary_tables.hpp"
#include "src/model/router_sums.hpp"
#include "src/model/shared_stages.hpp"
#include "src/model/tensor_shard.hpp"
#include "src/model/trained_tensors.hpp"
#include "src/model/transformer_stage.hpp"
#include "vocabpipe/context_cut.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>

namespace vocabpipe {

namespace {

std::vector<StageLayers> stages_of(const ModelConfig& config, const ModelPartition& partition) {
    std::vector<StageLayers> stages;
    int first = 0;
    for (const int count : partition.layers_per_stage) {
        stages.push_back({.first = first, .count = count});
        first += count;
    }
    if (first != config.num_layers) {
        throw UsageError("the stages hold " + std::to_string(first) +
                         " layers, but --num-layers is " + std::to_string(config.num_layers));
    }
    stages.front().embedding = has_embedded_tokens(config);
    stages.back().final_norm = true;
    stages.back().depths = config.mtp_num_layers;
    return stages;
}

/// A place of the pipeline has n rows of the vocabulary; of these, tensor rank i has those from n i
/// / t on.
ParameterRows vocabulary_part(const ModelConfig& config, const ShardMap& map, Mesh::Place place,
                              TeamPlace tensor) {
    const int64_t rows = map.rows(place.pipeline);
    if (rows < tensor.ranks) {
        throw UsageError("--tensor-model-parallel-size " + std::to_string(tensor.ranks) +
                         ": pipeline rank " + std::to_string(place.pipeline) + " has only " +
                         std::to_string(rows) + " of the " + std::to_string(config.vocab_size) +
                         " rows of the vocabulary, which its tensor ranks share; use at most " +
                         std::to_string(rows));
    }
    return {.shard = row_shard({map.begin(place.pipeline), rows}, config.hidden_size, tensor),
            .memory_rows = largest_part(rows, tensor.ranks)};
}

TeamPlace expert_place(const ModelPartition& partition, const Mesh& mesh, Mesh::Place place) {
    return {.rank = mesh.expert_rank(place),
            .ranks = partition.expert,
            .expert_tensor = partition.expert_tensor};
}

GraphCut graph_cut(const ModelPartition& partition) {
    return {.layers_per_stage = partition.layers_per_stage,
            .sequences = partition.micro_batch_size,
            .threads = partition.threads_per_rank,
            .recompute = partition.recompute};
}

std::vector<ParameterRows> parameters_of_stage(const ModelConfig& config,
                                               const ModelPartition& partition,
                                               const std::vector<StageLayers>& stages, size_t s) {
    return config.model_forward
               ? graph_stage_parameters(config, graph_cut(partition), static_cast<int>(s))
               : stage_parameters(config, stages[s]);
}

/// All parameters of a rank of the world: its stages', then its input rows, then its output rows.
/// ParameterRows::owned is not set yet; the rest is the same on all replicas.
std::vector<ParameterRows> held_parameters(const ModelConfig& config,
                                           const ModelPartition& partition,
                                           const Schedule& schedule, Mesh::Place place) {
    const TeamPlace tensor{place.tensor, partition.tensor};
    const TeamPlace expert = expert_place(partition, partition.mesh(schedule.ranks), place);
    const ModelParameters model = model_parameters(config);
    std::vector<ParameterRows> rows;
    const std::vector<StageLayers> stages = stages_of(config, partition);
    for (size_t s = 0; s < stages.size(); ++s) {
        if (schedule.rank_of_stage[s] != place.pipeline) continue;
        for (ParameterRows& part : parameters_of_stage(config, partition, stages, s)) {
            const LogicalParameter& of = model.all[static_cast<size_t>(part.id)];
            part.shard = tensor_shard(of, of.cut == TensorCut::experts ? expert : tensor);
            part.memory_rows = part.shard.row_count();
            part.axis = gradient_axis(of.cut, partition.tensor, partition.expert);
            part.stage = static_cast<int>(s);
            rows.push_back(part);
        }
    }
    const bool input = schedule.input.rows(place.pipeline) > 0;
    if (input) {
        ParameterRows part = vocabulary_part(config, schedule.input, place, tensor);
        part.id = model.embedding;
        part.of = GradientBucket::Of::input;
        rows.push_back(part);
    }
    if (schedule.output.rows(place.pipeline) > 0) {
        ParameterRows part = vocabulary_part(config, schedule.output, place, tensor);
        part.id = model.output;
        part.shares_previous_weight = config.tied && input;
        part.counted_elsewhere = config.tied;
        part.of = GradientBucket::Of::output;
        rows.push_back(part);
    }
    for (ParameterRows& part : rows) part.frozen = partition.is_frozen(part.id);
    return rows;
}

/// The parameters of a rank of the world, and which of them it updates.
struct RankParameters {
    std::vector<ParameterRows> rows;
    std::vector<ParameterBucket> buckets;  ///< none where no other rank has any of them
};

RankParameters rank_parameters(const ModelConfig& config, const ModelPartition& partition,
                               const Schedule& schedule, int rank) {
    const Mesh mesh = partition.mesh(schedule.ranks);
    const Mesh::Place place = mesh.place(rank);
    RankParameters of_rank{held_parameters(config, partition, schedule, place), {}};
    if (mesh.slices() == 1) return of_rank;
    of_rank.buckets = gradient_buckets(config, of_rank.rows, mesh);
    if (partition.training) {
        shard_buckets(partition.zero_stage, of_rank.buckets);
        own_part(config, mesh, place, of_rank.buckets, of_rank.rows);
    }
    return of_rank;
}

std::unique_ptr<ParameterStore> store_of(Device& device, const ModelConfig& config,
                                         RankParameters held, int rank, bool training) {
    return std::make_unique<ParameterStore>(device, config, held.rows, std::move(held.buckets),
                                            "rank " + std::to_string(rank), training);
}

/// The layers of a stage that have experts.
std::vector<int> routed_layers_of(const ModelConfig& config, const StageLayers& stage) {
    std::vector<int> layers = routed_layers(config);
    std::erase_if(layers, [&](int layer) {
        const bool of_depth = layer >= config.num_layers;
        return of_depth ? stage.depths == 0
                        : layer < stage.first || layer >= stage.first + stage.count;
    });
    return layers;
}

/// The layers of a pipeline rank that have experts.
std::vector<int> routed_layers_of(const ModelConfig& config, const ModelPartition& partition,
                                  const Schedule& schedule, int pipeline_rank) {
    std::vector<int> layers;
    const std::vector<StageLayers> stages = stages_of(config, partition);
    for (size_t s = 0; s < stages.size(); ++s) {
        if (schedule.rank_of_stage[s] != pipeline_rank) continue;
        const std::vector<int> of_stage = routed_layers_of(config, stages[s]);
        layers.insert(layers.end(), of_stage.begin(), of_stage.end());
    }
    return layers;
}

/// A stage at a place of the mesh; memory depends on it only through the pipeline rank, which
/// `layers` stand for.
StageOptions stage_options(const ModelPartition& partition, const StageLayers& layers,
                           const Mesh& mesh = {}, const Mesh::Place& place = {}) {
    return {.layers = layers,
            .sequences = partition.micro_batch_size,
            .shorter_lengths = partition.shorter_lengths,
            .threads = partition.threads_per_rank,
            .recompute = partition.recompute,
            .context = {.rank = place.context, .ranks = partition.context},
            .context_exchange = partition.context_exchange,
            .tensor = {.rank = place.tensor, .ranks = partition.tensor},
            .tensor_pieces = partition.tensor_pieces,
            .expert = expert_place(partition, mesh, place),
            .moe_row_factor = partition.moe_row_factor,
            .expert_pieces = partition.expert_pieces};
}

const kernels::Operators& operators_of(const ModelPartition& partition) {
    return partition.operators != nullptr ? *partition.operators : kernels::host::operators();
}

/// UsageError for records and losses that the output layer cannot make.
void check_records(const ModelConfig& config, const ModelPartition& partition,
                   const Schedule& schedule) {
    partition.records.check(config.vocab_size);
    const bool changed =
        partition.records.temperature != 1 || !partition.records.allowed_tokens.empty();
    if (changed && config.label_smoothing > 0) {
        throw UsageError("label smoothing " + std::to_string(config.label_smoothing) +
                         " goes with neither a temperature nor forbidden tokens; set one of them");
    }
    if (!partition.loss) return;
    for (const TokenRecord record : {TokenRecord::top_logprobs, TokenRecord::label_rank}) {
        if (partition.loss->reads().has(record)) {
            throw UsageError("the step's TokenLoss reads the record " +
                             std::string(to_string(record)) +
                             ", which only StepWork::records can ask for; use other records");
        }
    }
    if (config.label_smoothing > 0 || config.z_loss > 0) {
        throw UsageError(
            "label smoothing and z-loss are terms of the cross-entropy, which the "
            "step's TokenLoss replaces; set them to 0");
    }
    if (partition.loss->listed() > config.vocab_size) {
        throw UsageError("the step's TokenLoss reads lists of " +
                         std::to_string(partition.loss->listed()) +
                         " tokens, but the vocabulary has " + std::to_string(config.vocab_size) +
                         "; make them shorter");
    }
    if (!partition.loss->has_entropy_slope()) return;
    if (schedule.barriers == Barriers::one) {
        throw UsageError(
            "vocabulary mode one_barrier: multiplies before the gradient of the entropy "
            "is known; use another mode, or a loss without the entropy");
    }
}

}  // namespace

ReportEntries report_entries(const ModelConfig& config) {
    return {.squares = static_cast<int64_t>(logical_parameters(config).size()),
            .routers = std::ssize(routed_layers(config)) * router_sums_of_layer(config),
            .depths = config.mtp_num_layers};
}

TrainedParts trained_parts(const ModelConfig& config, const ModelPartition& partition) {
    return TrainedTensors(config, ModelLayers(config), partition.frozen)
        .parts(partition.layers_per_stage);
}

StepSizes step_sizes(const ModelConfig& config, const ModelPartition& partition,
                     const Schedule& schedule) {
    if (partition.zero_stage < 1 || partition.zero_stage > 3) {
        throw UsageError("--zero-stage " + std::to_string(partition.zero_stage) +
                         ": must be 1, 2 or 3");
    }
    if (config.model_forward) check_graph_model(config, partition);
    check_frozen(logical_parameters(config), partition.frozen);
    check_lengths(config, partition);
    check_predicted_tokens(config, partition);
    StepSizes sizes;
    sizes.tokens = partition.tokens(config);
    sizes.predicted_tokens = config.predicted_tokens();
    for (const int64_t length : partition.shorter_lengths) {
        sizes.shorter.push_back({.tokens = partition.tokens(length)});
    }
    sizes.hidden = config.hidden_size;
    sizes.dtype = config.dtype;
    sizes.stages = partition.stage_bytes;
    for (const StageLayers& stage : stages_of(config, partition)) {
        if (!partition.stage_bytes.empty()) break;
        if (config.model_forward) {
            const GraphStage module(config, graph_cut(partition),
                                    static_cast<int>(std::ssize(sizes.stages)),
                                    operators_of(partition), {}, nullptr, nullptr);
            sizes.stages.push_back(module.bytes());
            continue;
        }
        if (stage.depths > 0) {
            const PredictingStage module(config, stage_options(partition, stage),
                                         operators_of(partition), {}, nullptr);
            sizes.stages.push_back(module.bytes());
            continue;
        }
        const TransformerStage module(config, stage_options(partition, stage),
                                      operators_of(partition), {}, nullptr);
        sizes.stages.push_back(module.bytes());
        for (size_t k = 0; k < sizes.shorter.size(); ++k) {
            sizes.shorter[k].stages.push_back(module.bytes_for(k + 1));
        }
    }
    if (config.model_forward) {
        sizes.stage_tensors = stage_tensors(config, graph_cut(partition));
        sizes.shared_weights = shared_weights(config, graph_cut(partition));
        const bool copied = partition.mesh(schedule.ranks).slices() > 1;
        if (copied && partition.zero_stage > 1 && !sizes.shared_weights.empty()) {
            throw UsageError("--zero-stage " + std::to_string(partition.zero_stage) +
                             ": the model has a weight that several layers share; use 1");
        }
    }
    sizes.keeps_logits = partition.records.columns.has(TokenRecord::label_rank);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
        const auto shard = [&](int64_t tokens) {
            return output_shard_bytes(operators_of(partition), tokens, sizes.hidden,
                                      largest_part(schedule.output.rows(rank), partition.tensor),
                                      config.dtype, sizes.keeps_logits);
        };
        sizes.shards.push_back(shard(sizes.output_rows()));
        for (LengthSizes& length : sizes.shorter) length.shards.push_back(shard(length.tokens));
    }
    check_records(config, partition, schedule);
    sizes.statistics = kernels::statistics_columns(partition.made_records());
    if (partition.loss && partition.loss->has_entropy_slope()) sizes.factors += 2;
    if (const int64_t listed = partition.loss ? partition.loss->listed() : 0; listed > 0) {
        sizes.statistics += listed;
        sizes.factors += 1 + listed;  // slopes
    }
    sizes.tied = config.tied && config.has_output_layer &&
                 !partition.is_frozen(model_parameters(config).embedding);
    sizes.weight_pass_reads_weights = weight_pass_reads_weights(config, partition.expert);
    sizes.report_bytes = partition.optimizer ? report_entries(config).bytes() : 0;
    sizes.replicas = partition.replicas;
    sizes.context = partition.context;
    sizes.tensor = partition.tensor;
    sizes.expert = partition.expert;
    for (const StageLayers& stage : stages_of(config, partition)) {
        sizes.has_experts.push_back(!routed_layers_of(config, stage).empty());
    }
    const Mesh mesh = partition.mesh(schedule.ranks);
    for (int rank = 0; mesh.slices() > 1 && rank < schedule.ranks; ++rank) {
        sizes.buckets.emplace_back();
        // Equal on all ranks at a place of the pipeline.
        for (const ParameterBucket& bucket :
             rank_parameters(config, partition, schedule, mesh.world_rank({.pipeline = rank}))
                 .buckets) {
            sizes.buckets.back().push_back(bucket.cut);
        }
    }
    return sizes;
}

PersistentBytes persistent_bytes(const ModelConfig& config, const ModelPartition& partition,
                                 const Schedule& schedule, int rank) {
    const RankParameters held = rank_parameters(config, partition, schedule, rank);
    PersistentBytes bytes = persistent_bytes(config, held.rows, held.buckets, partition.training);
    bytes.weights += static_cast<uint64_t>(
        RotaryTables::bytes(config, partition.context, partition.shorter_lengths));
    const Mesh mesh = partition.mesh(schedule.ranks);
    for (size_t s = 0; config.model_forward && s < schedule.rank_of_stage.size(); ++s) {
        if (schedule.rank_of_stage[s] != mesh.pipeline_rank(rank)) continue;
        const GraphStage stage(config, graph_cut(partition), static_cast<int>(s),
                               operators_of(partition), {}, nullptr, nullptr);
        bytes.weights += static_cast<uint64_t>(stage.result_bytes() * schedule.microbatches);
    }
    const std::vector<int> owners = schedule.output.owners();
    const bool first = !owners.empty() && owners.front() == mesh.pipeline_rank(rank) &&
                       mesh.place(rank).tensor == 0;
    const bool ranks_labels = partition.records.columns.has(TokenRecord::label_rank) &&
                              std::ranges::find(owners, mesh.pipeline_rank(rank)) != owners.end();
    if (ranks_labels || (first && !partition.records.columns.empty())) {
        bytes.weights += static_cast<uint64_t>(record_bytes(
            partition.made_records(), schedule.microbatches, partition.tokens(config)));
    }
    if (partition.training) {
        const int pipeline_rank = partition.mesh(schedule.ranks).pipeline_rank(rank);
        bytes.gradients += RouterSums::bytes(
            config, std::ssize(routed_layers_of(config, partition, schedule, pipeline_rank)));
    }
    return bytes;
}

uint64_t stored_bytes(const ModelConfig& config, const ModelPartition& partition,
                      const Schedule& schedule, int rank) {
    const std::vector<LogicalParameter> logical = logical_parameters(config);
    const int64_t fp32_values = config.dtype == DType::fp32 ? 2 : 3;  // moments, masters
    int64_t bytes = 0;
    const RankParameters held = rank_parameters(config, partition, schedule, rank);
    std::vector<bool> shards_weight(held.rows.size(), false);
    for (const ParameterBucket& bucket : held.buckets) {
        for (const size_t i : bucket.parameters) shards_weight[i] = bucket.cut.shards_weights;
    }
    for (size_t i = 0; i < held.rows.size(); ++i) {
        const ParameterRows& part = held.rows[i];
        if (part.counted_elsewhere || part.shares_previous_weight) continue;
        const LogicalParameter& of = logical[static_cast<size_t>(part.id)];
        const int64_t whole = part.size();
        if (of.correction_bias) {
            if (part.owned.count != 0) bytes += whole * size_of(DType::fp32);
            continue;
        }
        const int64_t elements = part.owned.count >= 0 ? part.owned.count : whole;
        // A transposed matrix is written whole, by the owner of its head (stored_rows.cpp).
        const bool head = elements > 0 && part.owned.first == 0;
        const bool by_head = of.transposed_in_files && !shards_weight[i];
        const int64_t weights = !by_head ? elements : head ? whole : 0;
        bytes += weights * size_of(config.dtype);
        if (!part.frozen) bytes += elements * fp32_values * size_of(DType::fp32);
    }
    return static_cast<uint64_t>(bytes);
}

ModelRank::ModelRank(const ModelConfig& config, const ModelPartition& partition,
                     const Schedule& schedule, int rank, Device& device)
    : config_(config),
      frozen_(partition.frozen),
      mesh_(partition.mesh(schedule.ranks)),
      device_(device),
      store_(store_of(device, config, rank_parameters(config, partition, schedule, rank), rank,
                      partition.training)),
      rotary_(std::make_unique<RotaryTables>(
          device, config,
          ContextCut(config.seq_length, mesh_.place(rank).context, partition.context),
          "rank " + std::to_string(rank), partition.shorter_lengths)) {
    if (config.moe.experts > 0 && partition.training) {
        router_sums_ = std::make_unique<RouterSums>(
            device, config,
            routed_layers_of(config, partition, schedule, mesh_.pipeline_rank(rank)),
            "rank " + std::to_string(rank));
    }
    std::span<Parameter> rest = parameters();
    const auto take = [&](size_t count) {
        const std::span<Parameter> part = rest.first(count);
        rest = rest.subspan(count);
        return part;
    };
    const int pipeline_rank = mesh_.pipeline_rank(rank);
    const std::vector<StageLayers> stages = stages_of(config, partition);
    stages_.resize(stages.size());
    for (size_t s = 0; s < stages.size(); ++s) {
        if (schedule.rank_of_stage[s] != pipeline_rank) continue;
        StageOptions options = stage_options(partition, stages[s], mesh_, mesh_.place(rank));
        options.router_sums = router_sums_.get();
        const std::span<Parameter> held =
            take(parameters_of_stage(config, partition, stages, s).size());
        if (config.model_forward) {
            stages_[s] =
                std::make_unique<GraphStage>(config, graph_cut(partition), static_cast<int>(s),
                                             device.operators(), held, rotary_.get(), &device);
        } else if (stages[s].depths > 0) {
            stages_[s] = std::make_unique<PredictingStage>(config, options, device.operators(),
                                                           held, rotary_.get());
        } else {
            stages_[s] = std::make_unique<TransformerStage>(config, options, device.operators(),
                                                            held, rotary_.get());
        }
    }
    if (schedule.input.rows(pipeline_rank) > 0) {
        input_ = std::make_unique<ShardedInputLayer>(take(1));
    }
    if (schedule.output.rows(pipeline_rank) > 0) {
        outputs_.push_back(std::make_unique<ShardedOutputLayer>(
            device, take(1), partition.tokens(config),
            kernels::LossOptions{.label_smoothing = config.label_smoothing,
                                 .z_loss = config.z_loss,
                                 .logit_softcap = config.logit_softcap},
            OutputRecords{.options = partition.records,
                          .loss = partition.loss,
                          .hidden_sums = partition.hidden_sums,
                          .predicted_tokens = config.predicted_tokens(),
                          .tensor = partition.tensor}));
    }
}

ModelRank::~ModelRank() = default;

void ModelRank::initialise(Context& ctx, uint64_t seed) {
    store_->initialise(ctx, config_, seed, {});
}

void ModelRank::initialise_adapters(Context& ctx, uint64_t seed) {
    store_->initialise(ctx, config_, seed, {.only_adapters = true});
}

std::span<Parameter> ModelRank::parameters() {
    return store_->parameters();
}

void ModelRank::replace_output(std::unique_ptr<OutputLayer> layer) {
    if (outputs_.empty()) {
        throw UsageError("replace_output: this rank has no rows of the output layer");
    }
    outputs_.push_back(std::move(layer));
}

void ModelRank::replace_stage(int stage, std::unique_ptr<StageModule> module) {
    const auto s = static_cast<size_t>(stage);
    if (s >= stages_.size() || stages_[s] == nullptr) {
        throw UsageError("replace_stage: stage " + std::to_string(stage) +
                         " is not on this rank; use one of its own stages");
    }
    for (const Parameter& parameter : stages_[s]->parameters()) {
        if (!parameter.shards_gradient && !parameter.shards_weight) continue;
        throw UsageError("replace_stage: ranks share the gradients of stage " +
                         std::to_string(stage) +
                         " (ZeRO stage 2 or 3), which a stage of your own does not make; use 1");
    }
    replaced_.resize(stages_.size());
    replaced_[s] = std::move(module);
}

std::span<const double> ModelRank::router_sums(int layer) const {
    return router_sums_ != nullptr ? router_sums_->of(layer) : std::span<double>();
}

StageModule* ModelRank::stage(size_t index) const {
    StageModule* const other = replaced_.empty() ? nullptr : replaced_[index].get();
    return other != nullptr ? other : stages_[index].get();
}

std::vector<std::span<const double>> ModelRank::stage_losses() const {
    std::vector<std::span<const double>> all;
    for (size_t s = 0; s < stages_.size(); ++s) {
        if (stage(s) != nullptr && !stage(s)->losses().empty()) all.push_back(stage(s)->losses());
    }
    return all;
}

ConstTensor ModelRank::stage_result(const std::string& name) const {
    for (size_t s = 0; s < stages_.size(); ++s) {
        if (stage(s) == nullptr) continue;
        if (const ConstTensor found = stage(s)->result(name)) return found;
    }
    return {};
}

RankBucket ModelRank::bucket(size_t index) const {
    return store_->bucket(index);
}

void ModelRank::place_weights(size_t bucket, Bytes whole) {
    store_->place_weights(bucket, whole);
}

void ModelRank::place_gradients(size_t bucket, Bytes whole) {
    store_->place_gradients(bucket, whole);
}

std::unique_ptr<TransformerStage> ModelRankInternals::forward_stage(
    ModelRank& model, const ModelPartition& partition, Mesh::Place place, int stage, int64_t length,
    const KeyValueCache& cache, const RotaryTables& rotary) {
    ModelConfig config = model.config_;
    config.seq_length = length;
    const auto s = static_cast<size_t>(stage);
    StageOptions options =
        stage_options(partition, stages_of(config, partition)[s], model.mesh_, place);
    options.cache = &cache;
    return std::make_unique<TransformerStage>(config, options, model.device_.operators(),
                                              model.stages_[s]->parameters(), &rotary);
}

StageBytes ModelRankInternals::forward_bytes(const ModelConfig& config,
                                             const ModelPartition& partition, int stage) {
    const KeyValueCache none;
    StageOptions options =
        stage_options(partition, stages_of(config, partition)[static_cast<size_t>(stage)]);
    options.cache = &none;
    return TransformerStage(config, options, operators_of(partition), {}, nullptr).bytes();
}

std::unique_ptr<DraftStage> ModelRankInternals::draft_stage(ModelRank& model,
                                                            const ModelPartition& partition,
                                                            const DraftStageOptions& options) {
    StageLayers before = stages_of(model.config_, partition).back();
    before.depths = options.depth;
    const auto parameters_of = [&](const StageLayers& layers) {
        return stage_parameters(model.config_, layers).size();
    };
    StageLayers through = before;
    ++through.depths;
    const size_t first = parameters_of(before);
    const std::span<Parameter> own =
        model.stages_.back()->parameters().subspan(first, parameters_of(through) - first);
    return std::make_unique<DraftStage>(model.config_, options, model.device_.operators(), own);
}

StageBytes ModelRankInternals::draft_bytes(const ModelConfig& config,
                                           const ModelPartition& partition) {
    const KeyValueCache none;
    const DraftStageOptions options{
        .tokens = config.seq_length, .threads = partition.threads_per_rank, .cache = &none};
    return DraftStage(config, options, operators_of(partition), {}).bytes();
}

RankModules ModelRank::modules(StepModule* step) {
    RankModules modules;
    for (size_t s = 0; s < stages_.size(); ++s) modules.stages.push_back(stage(s));
    modules.input = input();
    modules.output = output();
    modules.step = step;
    return modules;
}

}  // namespace vocabpipe
