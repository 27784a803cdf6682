// SPDX-License-Identifier: Apache-2.0
#include "tests/support/single_rank_oracle.hpp"

#include "kernels/host/operators.hpp"
#include "src/model/input_layer.hpp"
#include "src/model/output_layer.hpp"
#include "src/runtime/device_batch.hpp"
#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <random>

namespace vocabpipe::testing {

namespace {

/// Memory of the device that holds NaN until it is written.
class Storage {
public:
    Storage() = default;
    Storage(Device& device, int64_t bytes)
        : memory_(device.allocate(static_cast<uint64_t>(bytes), "the oracle's memory")) {
        const std::vector<std::byte> nan(memory_.size(), std::byte{0xff});
        if (!nan.empty()) device.upload(nan, memory_.data());
    }
    [[nodiscard]] std::byte* data() const { return memory_.data(); }
    operator Bytes() const { return memory_.bytes(); }

private:
    DeviceMemory memory_;
};

template <typename T>
std::vector<T> downloaded(Device& device, const T* from, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    if (count > 0) {
        device.download(reinterpret_cast<const std::byte*>(from),
                        std::as_writable_bytes(std::span(values)));
    }
    return values;
}

/// Everything one microbatch leaves behind for the weight gradients.
struct Trace {
    std::vector<Storage> x;           ///< [stage] input, then X
    std::vector<Storage> saved;       ///< [stage]
    std::vector<Storage> recomputed;  ///< [stage]
    std::vector<Storage> for_weight;  ///< [stage]
    std::vector<Storage> exp_logits;  ///< [shard]
    std::vector<Storage> factors;     ///< [shard]
    Storage dx;                       ///< gradient of the embedded tokens
    Storage dx_of_depths;             ///< that of the depths of multi-token prediction

    [[nodiscard]] Activations activations(size_t stage) const {
        return {.saved = saved[stage], .recomputed = recomputed[stage]};
    }
};

}  // namespace

std::vector<Microbatch> Batch::microbatches() const {
    std::vector<Microbatch> all;
    for (size_t j = 0; j < tokens.size(); ++j) {
        all.push_back(
            {.index = static_cast<int>(j),
             .sequences = sequences,
             .seq_length = seq_length,
             .tokens = tokens[j],
             .labels = labels[j],
             .loss_gradient = loss_gradient[j],
             .loss_weight = loss_weights.empty() ? std::nullopt : std::optional(loss_weights[j]),
             .first_visible = first_visible_of(j),
             .columns = columns.empty() ? std::span<const float>() : columns[j]});
    }
    return all;
}

void add_later_labels(const ModelConfig& config, Batch& batch) {
    for (size_t j = 0; j < batch.labels.size(); ++j) {
        const auto n = static_cast<int64_t>(batch.tokens[j].size());
        for (int k = 1; k <= config.mtp_num_layers; ++k) {
            for (int64_t i = 0; i < n; ++i) {
                const bool known = i % batch.seq_length + k < batch.seq_length;
                const auto from = static_cast<size_t>(known ? i + k : 0);
                batch.labels[j].push_back(known ? batch.labels[j][from] : -100);
                batch.loss_gradient[j].push_back(
                    known ? batch.loss_gradient[j][from] * config.mtp_loss_weight() : 0.0F);
            }
        }
    }
}

Batch random_batch(const ModelConfig& config, int microbatches, int64_t sequences, uint32_t seed,
                   double ignored) {
    Batch batch;
    batch.sequences = sequences;
    batch.seq_length = config.seq_length;
    std::mt19937 random(seed);
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(config.vocab_size) - 1);
    std::bernoulli_distribution drop(ignored);
    const auto n = static_cast<size_t>(sequences * config.seq_length);
    for (int j = 0; j < microbatches; ++j) {
        std::vector<int32_t> tokens(n);
        std::vector<int32_t> labels(n);
        for (size_t i = 0; i < n; ++i) {
            tokens[i] = id(random);
            labels[i] = drop(random) ? -100 : id(random);
            if (labels[i] >= 0) ++batch.counted_tokens;
        }
        batch.tokens.push_back(std::move(tokens));
        batch.labels.push_back(std::move(labels));
    }
    for (const std::vector<int32_t>& labels : batch.labels) {
        std::vector<float> g(n, 0.0F);
        for (size_t i = 0; i < n; ++i) {
            if (labels[i] >= 0) g[i] = 1.0F / static_cast<float>(batch.counted_tokens);
        }
        batch.loss_gradient.push_back(std::move(g));
    }
    add_later_labels(config, batch);
    return batch;
}

void cut_into_documents(Batch& batch, uint32_t seed) {
    std::mt19937 random(seed);
    std::bernoulli_distribution begins(1.0 / 3);
    batch.first_visible.clear();
    for (const std::vector<int32_t>& tokens : batch.tokens) {
        std::vector<int32_t>& first = batch.first_visible.emplace_back();
        for (size_t n = 0; n < tokens.size(); ++n) {
            const auto t = static_cast<int32_t>(static_cast<int64_t>(n) % batch.seq_length);
            first.push_back(t == 0 || begins(random) ? t : first.back());
        }
    }
}

Gradients run_single_rank(const ModelConfig& config, const ModelPartition& partition,
                          const Schedule& schedule, const Batch& batch, uint64_t seed) {
    const std::unique_ptr<Device> host = make_host_device();
    return run_single_rank(config, partition, schedule, batch, seed, *host);
}

Gradients run_single_rank(const ModelConfig& config, ModelPartition partition,
                          const Schedule& schedule, const Batch& batch, uint64_t seed,
                          Device& device) {
    partition.operators = &device.operators();
    const auto storage = [&](int64_t bytes) { return Storage(device, bytes); };
    Schedule alone;
    alone.ranks = 1;
    alone.stages = schedule.stages;
    alone.microbatches = schedule.microbatches;
    alone.rank_of_stage.assign(static_cast<size_t>(schedule.stages), 0);
    alone.input = alone.output = ShardMap::whole(config.vocab_size, 1, 0);
    alone.passes.resize(1);

    Context ctx(device.context(partition.threads_per_rank, {}));
    ModelRank model(config, partition, alone, 0, device);
    model.initialise(ctx, seed);
    const RankModules modules = model.modules();
    const StepSizes sizes = step_sizes(config, partition, alone);
    const int64_t n = sizes.tokens;
    const int64_t h = sizes.hidden;
    const int64_t rows = sizes.output_rows();
    const size_t last = static_cast<size_t>(alone.stages) - 1;
    const bool predicts_later = rows > n;
    const auto boundary = [&](Storage& bytes) { return Tensor(bytes.data(), n, h, config.dtype); };
    const auto output = [&](Storage& bytes) { return Tensor(bytes.data(), rows, h, config.dtype); };
    const int64_t boundary_bytes = n * h * size_of(config.dtype);
    const int64_t output_bytes = rows * h * size_of(config.dtype);

    // The output layer cut into the schedule's shards: views of the whole weight and gradient.
    const std::vector<int> owners = schedule.output.owners();
    std::vector<Parameter> shard_parameters;
    for (const int rank : owners) {
        Parameter part = model.output()->parameters().front();
        part.first_row = schedule.output.begin(rank);
        part.weight = part.weight.row_range(part.first_row, schedule.output.rows(rank));
        part.gradient = part.gradient.row_range(part.first_row, schedule.output.rows(rank));
        shard_parameters.push_back(part);
    }
    std::vector<ShardedOutputLayer> shards;
    for (Parameter& part : shard_parameters) {
        shards.emplace_back(device, std::span(&part, 1), n,
                            kernels::LossOptions{.label_smoothing = config.label_smoothing,
                                                 .z_loss = config.z_loss,
                                                 .logit_softcap = config.logit_softcap},
                            OutputRecords{.predicted_tokens = config.predicted_tokens()});
        shards.back().begin_step(schedule.microbatches);
    }

    const std::vector<Microbatch> host_microbatches = batch.microbatches();
    DeviceBatch device_batch;
    const std::span<const Microbatch> microbatches = device_batch.load(device, host_microbatches);
    std::vector<Trace> traces(microbatches.size());
    for (size_t j = 0; j < microbatches.size(); ++j) {
        const Microbatch& mb = microbatches[j];
        Trace& t = traces[j];
        t.x.push_back(storage(boundary_bytes));
        modules.input->embed(ctx, mb, boundary(t.x[0]));
        for (size_t s = 0; s < modules.stages.size(); ++s) {
            const StageBytes& bytes = sizes.stages[s];
            t.saved.push_back(storage(bytes.saved));
            t.recomputed.push_back(storage(bytes.recomputed));
            t.x.push_back(storage(s == last ? output_bytes : boundary_bytes));
            Storage workspace = storage(bytes.forward_workspace);
            Activations activations = t.activations(s);
            if (s == last && predicts_later) activations.embedded = boundary(t.x[0]);
            modules.stages[s]->forward(ctx, mb, boundary(t.x[s]),
                                       s == last ? output(t.x[s + 1]) : boundary(t.x[s + 1]),
                                       activations, workspace);
        }

        const Tensor x = output(t.x.back());
        const auto count = static_cast<int64_t>(shards.size());
        Storage statistics = storage(count * rows * StepSizes::kStatistics * 4);
        const Tensor all(statistics.data(), count * rows, StepSizes::kStatistics, DType::fp32);
        const auto exp_logits = [&](size_t k) {
            return Tensor(t.exp_logits[k].data(), rows,
                          exp_logits_columns(shard_parameters[k].weight.rows), config.dtype);
        };
        const auto factors = [&](size_t k) {
            return Tensor(t.factors[k].data(), rows, StepSizes::kFactors, DType::fp32);
        };
        for (size_t k = 0; k < shards.size(); ++k) {
            const ShardBytes bytes = output_shard_bytes(
                device.operators(), rows, h, shard_parameters[k].weight.rows, config.dtype);
            t.exp_logits.push_back(storage(bytes.exp_logits));
            t.factors.push_back(storage(rows * StepSizes::kFactors * 4));
            Storage workspace = storage(bytes.score_workspace);
            shards[k].score(ctx, mb, x, exp_logits(k),
                            all.row_range(static_cast<int64_t>(k) * rows, rows), workspace);
        }
        std::vector<float> sum(static_cast<size_t>(rows * h));
        const Storage partial_memory = storage(rows * h * 4);
        const Tensor u(partial_memory.data(), rows, h, DType::fp32);
        for (size_t k = 0; k < shards.size(); ++k) {
            shards[k].combine_softmax(ctx, mb, all, static_cast<int>(k), factors(k));
            shards[k].input_product(ctx, exp_logits(k), u);
            shards[k].finish_input_gradient(ctx, mb, factors(k), u);
            const std::vector<float> partial = downloaded(device, u.as<float>(), rows * h);
            for (size_t i = 0; i < sum.size(); ++i) {
                sum[i] = k == 0 ? partial[i] : sum[i] + partial[i];
            }
        }
        Storage dy = storage(output_bytes);
        std::vector<std::byte> rounded(static_cast<size_t>(output_bytes));
        kernels::host::convert(ctx, ConstTensor(sum.data(), rows, h, DType::fp32),
                               Tensor(rounded.data(), rows, h, config.dtype));
        device.upload(rounded, dy.data());
        t.for_weight.resize(modules.stages.size());
        for (size_t s = modules.stages.size(); s-- > 0;) {
            const StageBytes& bytes = sizes.stages[s];
            t.for_weight[s] = storage(bytes.for_weight);
            t.dx = storage(boundary_bytes);
            Storage workspace = storage(bytes.input_gradient_workspace);
            Activations activations = t.activations(s);
            if (s == last && predicts_later) {
                t.dx_of_depths = storage(boundary_bytes);
                activations.embedded_gradient = boundary(t.dx_of_depths);
            }
            modules.stages[s]->backward_input(ctx, mb, s == last ? output(dy) : boundary(dy),
                                              boundary(t.x[s]), activations, boundary(t.dx),
                                              t.for_weight[s], workspace);
            std::swap(dy, t.dx);
        }
        std::swap(dy, t.dx);
    }

    // Weight gradients in each rank's own order.
    std::vector<bool> begun_stage(modules.stages.size(), false);
    for (size_t rank = 0; rank < schedule.passes.size(); ++rank) {
        bool begun_output = false;
        bool begun_input_rows = false;
        const auto shard = std::find(owners.begin(), owners.end(), static_cast<int>(rank));
        for (const Pass& pass : schedule.passes[rank]) {
            if (pass.op != Op::B && pass.op != Op::W && pass.op != Op::T && pass.op != Op::G) {
                continue;
            }
            const Microbatch& mb = microbatches[pass.microbatch];
            Trace& t = traces[pass.microbatch];
            if (pass.op == Op::B || pass.op == Op::W) {
                const size_t s = pass.stage;
                Storage workspace = storage(sizes.stages[s].weight_gradient_workspace);
                modules.stages[s]->backward_weight(ctx, mb, boundary(t.x[s]), t.activations(s),
                                                   t.for_weight[s], workspace, begun_stage[s]);
                begun_stage[s] = true;
            } else if (pass.op == Op::T) {
                const auto k = static_cast<size_t>(shard - owners.begin());
                const ShardBytes bytes = output_shard_bytes(
                    device.operators(), rows, h, shard_parameters[k].weight.rows, config.dtype);
                Storage workspace = storage(bytes.weight_gradient_workspace);
                shards[k].weight_gradient(
                    ctx, mb, output(t.x.back()),
                    Tensor(t.exp_logits[k].data(), rows,
                           exp_logits_columns(shard_parameters[k].weight.rows), config.dtype),
                    Tensor(t.factors[k].data(), rows, StepSizes::kFactors, DType::fp32), workspace,
                    begun_output);
                begun_output = true;
            } else {
                // Rows of this rank only; a row's gradient comes from its own rank's G passes.
                Parameter part = modules.input->parameters().front();
                const int64_t first = schedule.input.begin(static_cast<int>(rank));
                part.first_row = first;
                part.gradient = part.gradient_of_layer().row_range(
                    first, schedule.input.rows(static_cast<int>(rank)));
                part.token_gradient = {};
                ShardedInputLayer rows_of_rank(std::span(&part, 1));
                rows_of_rank.gradient(ctx, mb, boundary(t.dx), begun_input_rows);
                if (predicts_later) rows_of_rank.gradient(ctx, mb, boundary(t.dx_of_depths), true);
                begun_input_rows = true;
            }
        }
    }

    Gradients result;
    const std::span<const double> losses = shards.front().losses();
    result.losses = downloaded(device, losses.data(), std::ssize(losses));
    const std::span<const double> of_depths = shards.front().depth_losses();
    result.depth_losses = downloaded(device, of_depths.data(), std::ssize(of_depths));
    for (const Parameter& p : model.parameters()) {
        if (p.correction_bias) continue;
        const bool output_side = config.tied && p.counted_elsewhere;
        const Tensor gradient = p.gradient_of_layer();
        result.by_name[p.name + (output_side ? " (output)" : "")] =
            downloaded(device, gradient.as<float>(), gradient.size());
    }
    return result;
}

}  // namespace vocabpipe::testing
