// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pipeline_run.hpp"

#include "vocabpipe/make_schedule.hpp"
#include "vocabpipe/trained_rank.hpp"

#include <cstring>
#include <mutex>
#include <sstream>

namespace vocabpipe::testing {

namespace {

template <typename T>
void put(std::vector<std::byte>& out, const T& value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    out.insert(out.end(), bytes.begin(), bytes.end());
}

class Reader {
public:
    explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
    [[nodiscard]] bool empty() const { return bytes_.empty(); }
    template <typename T>
    T take() {
        T value;
        std::memcpy(&value, bytes_.data(), sizeof value);
        bytes_ = bytes_.subspan(sizeof value);
        return value;
    }
    std::span<const std::byte> take_bytes(size_t count) {
        const auto part = bytes_.first(count);
        bytes_ = bytes_.subspan(count);
        return part;
    }

private:
    std::span<const std::byte> bytes_;
};

std::vector<std::byte> serialise(ModelRank& model, bool tied) {
    std::vector<std::byte> out;
    for (const Parameter& p : model.parameters()) {
        if (p.correction_bias) continue;
        const Tensor gradient = p.gradient_of_layer();
        const std::string name = p.name + (tied && p.counted_elsewhere ? " (output)" : "");
        put(out, static_cast<uint64_t>(name.size()));
        for (const char c : name) put(out, c);
        put(out, static_cast<uint64_t>(p.logical_rows * gradient.cols));
        put(out, static_cast<uint64_t>(p.first_row * gradient.cols));
        put(out, static_cast<uint64_t>(gradient.size()));
        std::vector<std::byte> values(static_cast<size_t>(gradient.bytes()));
        model.device().download(gradient.as<std::byte>(), values);
        out.insert(out.end(), values.begin(), values.end());
    }
    return out;
}

void merge(std::span<const std::byte> bytes, Gradients& into) {
    Reader in(bytes);
    while (!in.empty()) {
        const auto length = in.take<uint64_t>();
        const auto text = in.take_bytes(length);
        const std::string name(reinterpret_cast<const char*>(text.data()), length);
        const auto total = in.take<uint64_t>();
        const auto first = in.take<uint64_t>();
        const auto count = in.take<uint64_t>();
        std::vector<float>& whole = into.by_name[name];
        whole.resize(total);
        const auto values = in.take_bytes(count * sizeof(float));
        if (count > 0) std::memcpy(whole.data() + first, values.data(), values.size());
    }
}

}  // namespace

ModelPartition even_partition(const ModelConfig& config, const Schedule& schedule,
                              int64_t micro_batch_size) {
    return {.layers_per_stage =
                layers_per_stage(config.num_layers, schedule.stages, VocabMode::none, 0),
            .micro_batch_size = micro_batch_size,
            .threads_per_rank = 1,
            .optimizer = false};
}

Gradients run_pipeline(World& world, const ModelConfig& config, const ModelPartition& partition,
                       const Schedule& schedule, const Batch& batch, uint64_t seed,
                       const PipelineOptions& options) {
    TableCosts costs = options.costs;
    if (costs.stage_ns.empty()) {
        costs = TableCosts::uniform(schedule.ranks, schedule.stages, 1000, 2000, 500);
        costs.latency_ns = options.latency_ns;
    }
    Gradients result;
    std::mutex mutex;
    world.run([&](Communicator& communicator) {
        const std::unique_ptr<Device> device =
            options.make_device ? options.make_device(communicator.rank()) : make_host_device();
        ModelPartition of_device = partition;
        of_device.operators = &device->operators();
        const StepPlan plan = plan_step(config, of_device, schedule, costs,
                                        {.receive_ahead = options.receive_ahead,
                                         .reductions = options.reductions,
                                         .pieces = options.pieces});
        TrainedRank rank(communicator, *device, plan,
                         {.seed = seed, .poison_dead_buffers = options.poison});
        ModelRank& model = rank.model();
        const std::vector<Microbatch> microbatches = batch.microbatches();
        for (int step = 0; step < options.steps; ++step) {
            rank.run(microbatches);
        }
        Gradients mine;
        for (const auto& part : communicator.all_gather(serialise(model, config.tied))) {
            merge(part, mine);
        }
        const auto of_output_rank = [&](std::span<const double> on_device) {
            std::vector<double> losses(on_device.size());
            if (!losses.empty()) {
                device->download(reinterpret_cast<const std::byte*>(on_device.data()),
                                 std::as_writable_bytes(std::span(losses)));
            }
            const auto all = communicator.all_gather(std::as_bytes(std::span(losses)));
            const auto& first = all[static_cast<size_t>(schedule.output.owners().front())];
            losses.resize(first.size() / sizeof(double));
            if (!first.empty()) std::memcpy(losses.data(), first.data(), first.size());
            return losses;
        };
        OutputLayer* const output = model.output();
        mine.losses = of_output_rank(output ? output->losses() : std::span<const double>());
        mine.depth_losses =
            of_output_rank(output ? output->depth_losses() : std::span<const double>());
        const std::lock_guard lock(mutex);
        result = std::move(mine);
    });
    return result;
}

std::string first_difference(const Gradients& expected, const Gradients& actual) {
    std::ostringstream out;
    out.precision(9);
    if (expected.losses != actual.losses) {
        out << "losses differ:";
        for (size_t j = 0; j < std::min(expected.losses.size(), actual.losses.size()); ++j) {
            out << " " << expected.losses[j] << " vs " << actual.losses[j] << ";";
        }
        return out.str();
    }
    if (expected.depth_losses != actual.depth_losses) return "losses of depths differ";
    for (const auto& [name, want] : expected.by_name) {
        const auto found = actual.by_name.find(name);
        if (found == actual.by_name.end()) return name + " is missing";
        if (found->second.size() != want.size()) return name + " has another size";
        for (size_t i = 0; i < want.size(); ++i) {
            if (std::memcmp(&want[i], &found->second[i], sizeof(float)) != 0) {
                out << name << "[" << i << "]: expected " << want[i] << ", got "
                    << found->second[i];
                return out.str();
            }
        }
    }
    if (expected.by_name.size() != actual.by_name.size()) return "more tensors than expected";
    return {};
}

}  // namespace vocabpipe::testing
