// SPDX-License-Identifier: Apache-2.0
#include "tests/train/training_run.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <type_traits>

#include "src/model/tensor_shard.hpp"
#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/mesh.hpp"
#include "vocabpipe/step_batch.hpp"
#include "vocabpipe/trained_parts.hpp"
#include "vocabpipe/trained_rank.hpp"
#include "vocabpipe/with_recomputation.hpp"

namespace vocabpipe::testing {

namespace {

/// `part`: what the rank owns of it.
void place(std::map<std::string, std::vector<float>>& all, const std::string& name,
           const Parameter& of, Tensor part, Device& device) {
    std::vector<float>& whole = all[name];
    whole.resize(static_cast<size_t>(of.logical_rows * of.logical_cols));
    if (part.size() == 0) return;
    const auto elements = static_cast<size_t>(part.size());
    const auto mine = std::make_unique<float[]>(elements);
    device.download(part.as<std::byte>(), std::as_writable_bytes(std::span(mine.get(), elements)));
    const int64_t first = of.owned.first;
    for_each_run(of.shard, of.logical_cols, [&](const ElementRun& run) {
        const int64_t begin = std::max(run.held, first);
        const int64_t end = std::min(run.held + run.count, first + part.size());
        if (begin >= end) return;
        std::copy(mine.get() + (begin - first), mine.get() + (end - first),
                  whole.begin() + (run.logical + begin - run.held));
    });
}

}  // namespace

Batch toy_batch(const TrainingSetup& setup, int step) {
    Batch batch = random_batch(setup.config, setup.microbatches * setup.replicas, setup.sequences,
                               static_cast<uint32_t>(step), setup.all_ignored ? 1 : 0);
    const auto length = static_cast<size_t>(setup.config.seq_length);
    for (size_t j = 0; j < batch.tokens.size(); ++j) {
        batch.labels[j].resize(batch.tokens[j].size());
        batch.loss_gradient[j].resize(batch.tokens[j].size());
        for (size_t n = 0; n < batch.tokens[j].size(); ++n) {
            if (n % length > 0) batch.tokens[j][n] = batch.labels[j][n - 1];
            if (setup.all_ignored) continue;
            batch.labels[j][n] =
                static_cast<int32_t>((5 * batch.tokens[j][n] + 3) % setup.config.vocab_size);
        }
        if (setup.all_ignored) std::fill(batch.tokens[j].begin(), batch.tokens[j].end(), 1);
    }
    add_later_labels(setup.config, batch);
    if (setup.documents) cut_into_documents(batch, static_cast<uint32_t>(step));
    return batch;
}

Batch part_of(const Batch& batch, int replica, int replicas) {
    Batch part = batch;
    part.tokens.clear();
    part.labels.clear();
    part.loss_gradient.clear();
    part.first_visible.clear();
    for (size_t j = static_cast<size_t>(replica); j < batch.tokens.size();
         j += static_cast<size_t>(replicas)) {
        part.tokens.push_back(batch.tokens[j]);
        part.labels.push_back(batch.labels[j]);
        part.loss_gradient.push_back(batch.loss_gradient[j]);
        if (!batch.first_visible.empty()) part.first_visible.push_back(batch.first_visible[j]);
    }
    return part;
}

Batch part_of(const Batch& batch, const ContextCut& cut) {
    if (cut.ranks() == 1) return batch;
    Batch part = batch;
    part.seq_length = cut.own_length();
    const auto take = [&](auto& microbatches) {
        for (auto& whole : microbatches) {
            auto own = whole;
            own.resize(whole.size() / static_cast<size_t>(cut.ranks()));
            for (int64_t sequence = 0; sequence < batch.sequences; ++sequence) {
                using T = typename std::decay_t<decltype(whole)>::value_type;
                cut.take(std::span<const T>(whole).subspan(
                             static_cast<size_t>(sequence * batch.seq_length),
                             static_cast<size_t>(batch.seq_length)),
                         std::span<T>(own).subspan(static_cast<size_t>(sequence * part.seq_length),
                                                   static_cast<size_t>(part.seq_length)));
            }
            whole = own;
        }
    };
    for (const std::vector<float>& g : batch.loss_gradient) {
        part.loss_weights.push_back(std::accumulate(g.begin(), g.end(), 0.0));
    }
    take(part.tokens);
    take(part.labels);
    take(part.loss_gradient);
    take(part.first_visible);
    return part;
}

TrainingSetup setup_on_mesh(const std::string& schedule, VocabMode mode, const Mesh& mesh,
                            int64_t vocab_size, const std::function<ModelConfig(int)>& model) {
    const Schedule placed = make_schedule(
        schedule,
        {.ranks = mesh.pipeline, .microbatches = 2, .vocab_mode = mode, .vocab_size = vocab_size});
    return {.config = model(placed.stages + 1),
            .family = schedule,
            .ranks = mesh.pipeline,
            .replicas = mesh.data,
            .tensor = mesh.tensor,
            .expert = mesh.expert,
            .context = mesh.context,
            .microbatches = 2,
            .mode = mode};
}

Training train_on_threads(const TrainingSetup& setup) {
    Schedule schedule = make_schedule(setup.family, {.ranks = setup.ranks,
                                                     .microbatches = setup.microbatches,
                                                     .vocab_mode = setup.mode,
                                                     .vocab_size = setup.config.vocab_size,
                                                     .rule = setup.rule});
    if (setup.recompute != Recompute::none) schedule = with_recomputation(schedule);
    ModelPartition partition = even_partition(setup.config, schedule, setup.sequences);
    partition.recompute = setup.recompute;
    partition.optimizer = true;
    partition.replicas = setup.replicas;
    partition.zero_stage = setup.zero.stage;
    partition.tensor = setup.tensor;
    partition.tensor_pieces = setup.tensor_pieces;
    partition.expert = setup.expert;
    partition.expert_tensor = setup.expert_tensor;
    partition.context = setup.context;
    partition.context_exchange = setup.context_exchange;
    partition.moe_row_factor = setup.moe_row_factor;
    partition.expert_pieces = setup.expert_pieces;
    partition.frozen = setup.frozen;
    partition.shorter_lengths = setup.shorter_lengths;
    partition.loss = setup.loss;
    if (setup.preference_beta) partition.records.columns = {TokenRecord::logprob};
    schedule = without_frozen_passes(schedule, trained_parts(setup.config, partition));
    const Mesh mesh = partition.mesh(setup.ranks);
    auto costs = TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500);
    costs.slices = mesh.slices();
    Training result;
    std::mutex mutex;
    World world = World::threads(mesh.size(), {.timeout_seconds = setup.timeout_seconds});
    world.run([&](Communicator& communicator) {
        const int rank = communicator.rank();
        const std::unique_ptr<Device> device =
            setup.make_device ? setup.make_device(rank) : make_host_device();
        ModelPartition of_device = partition;
        of_device.operators = &device->operators();
        const bool shares = setup.tensor > 1 || setup.context > 1 || setup.expert > 1;
        const LowerOptions lowering{.pieces = setup.pieces,
                                    .bucket_piece = setup.bucket_piece,
                                    .zero = setup.zero,
                                    .overlap_pairs = setup.overlap_pairs && shares};
        std::vector<StepPlan> plans{plan_step(setup.config, of_device, schedule, costs, lowering)};
        if (setup.preference_beta) {
            plans.push_back(
                plan_step(setup.config, of_device, evaluation_schedule(schedule), costs, lowering));
        }
        TrainedRank trained(communicator, *device, plans,
                            {.optimizer = setup.optimizer,
                             .seed = setup.seed,
                             .poison_dead_buffers = true,
                             .length_programs = setup.length_programs});
        std::vector<StepResult> results;
        std::vector<PreferenceMeans> of_pairs;
        std::optional<PreferenceStep> pairs;
        if (setup.preference_beta) pairs.emplace(trained, *setup.preference_beta);
        std::optional<StepBatch> read;
        if (setup.samples != nullptr) {
            read.emplace(*setup.samples, StepBatchOptions{.micro_batch_size = setup.sequences,
                                                          .replica = mesh.replica(rank),
                                                          .replicas = mesh.data,
                                                          .context_rank = mesh.place(rank).context,
                                                          .context = mesh.context,
                                                          .arrange = setup.arrange});
        }
        for (int step = 1; step <= setup.steps; ++step) {
            if (read) {
                read->load(trained.position().consumed_samples, setup.microbatches);
                if (pairs) {
                    pairs->run(*read, 1);
                    of_pairs.push_back(pairs->means());
                }
                trained.train_step(pairs ? pairs->microbatches() : read->microbatches(),
                                   read->counted_tokens(), setup.learning_rate.after(step));
                results.push_back(trained.report());
                if (pairs) results.back().loss = of_pairs.back().loss;
                continue;
            }
            const Batch batch = toy_batch(setup, step);
            const Batch mine =
                part_of(part_of(batch, mesh.replica(rank), mesh.data),
                        ContextCut(batch.seq_length, mesh.place(rank).context, mesh.context));
            trained.train_step(mine.microbatches(), batch.counted_tokens,
                               setup.learning_rate.after(step));  // not 0 in the first step
            results.push_back(trained.report());
        }
        const std::lock_guard lock(mutex);
        result.pairs = of_pairs;
        for (const Parameter& p : trained.parameters()) {
            if (p.correction_bias) {
                std::vector<float> values(static_cast<size_t>(p.weight.size()));
                device->download(p.weight.as<std::byte>(),
                                 std::as_writable_bytes(std::span(values)));
                result.correction_biases.emplace(p.name, std::move(values));
            }
            if (!p.exp_avg) continue;  // shares a weight
            place(result.weights, p.name + (p.counted_elsewhere ? " (copy)" : ""), p, p.master,
                  *device);
            place(result.gradients, p.name + (p.counted_elsewhere ? " (copy)" : ""), p,
                  p.owned_gradient, *device);
        }
        if (rank != 0) return;
        for (const StepResult& r : results) {
            result.losses.push_back(r.loss);
            result.depth_losses.push_back(r.depth_losses);
            result.grad_norms.push_back(r.grad_norm);
            result.updated.push_back(r.updated);
            result.routers.push_back(r.routers);
        }
    });
    return result;
}

double largest_difference(const std::map<std::string, std::vector<float>>& expected,
                          const std::map<std::string, std::vector<float>>& actual) {
    double worst = expected.empty() ? INFINITY : 0;
    for (const auto& [name, want] : expected) {
        const auto found = actual.find(name);
        if (found == actual.end() || found->second.size() != want.size()) return INFINITY;
        double largest = 1e-6;
        for (const float value : want) largest = std::max(largest, std::abs(double{value}));
        for (size_t i = 0; i < want.size(); ++i) {
            worst = std::max(worst, std::abs(double{want[i]} - found->second[i]) / largest);
        }
    }
    return worst;
}

std::string first_difference(const Training& expected, const Training& actual) {
    for (size_t i = 0; i < expected.losses.size(); ++i) {
        if (expected.losses[i] != actual.losses[i]) {
            return "loss of step " + std::to_string(i + 1);
        }
        if (expected.depth_losses[i] != actual.depth_losses[i]) {
            return "losses of the depths of step " + std::to_string(i + 1);
        }
        if (expected.grad_norms[i] != actual.grad_norms[i]) {
            return "grad_norm of step " + std::to_string(i + 1);
        }
    }
    for (const auto& [name, want] : expected.weights) {
        const auto found = actual.weights.find(name);
        if (found == actual.weights.end() || found->second.size() != want.size() ||
            std::memcmp(found->second.data(), want.data(), want.size() * sizeof(float)) != 0) {
            return "weight " + name;
        }
    }
    return {};
}

}  // namespace vocabpipe::testing
