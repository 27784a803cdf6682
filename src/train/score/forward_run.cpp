// SPDX-License-Identifier: Apache-2.0
#include "src/train/score/forward_run.hpp"

#include "src/step/same_on_every_rank.hpp"
#include "src/support/output_file.hpp"
#include "src/support/process_memory.hpp"
#include "src/train/plan/planned_memory.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/model_flops.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

namespace vocabpipe {

namespace {

void check_output(const ForwardOptions& options, const OutputKind& kind,
                  const Checkpoint& checkpoint, const TrainingData& data) {
    std::vector<std::string> inputs = data.files();
    for (const auto& entry : std::filesystem::directory_iterator(checkpoint.folder())) {
        inputs.push_back(entry.path().string());
    }
    OutputCheck(std::move(inputs)).add("--output", options.output, kind);
    const OutputFile probe(options.output);  // fails before the work rather than after it
}

StepPlan plan_forward(const ForwardOptions& options, const ForwardWork& work,
                      const ModelConfig& model, const std::vector<int64_t>& shorter_lengths,
                      int ranks, const Device& device, int threads) {
    const int pipeline = options.pipeline == 0 ? ranks : options.pipeline;
    if (pipeline < 1 || ranks % pipeline != 0) {
        throw UsageError("--pipeline-model-parallel-size " + std::to_string(pipeline) +
                         ": must divide the number of ranks, " + std::to_string(ranks));
    }
    // Enough microbatches to fill the pipeline, few enough that their samples fit the memory.
    constexpr int kMicrobatchesPerRank = 4;
    return plan_step(model,
                     {.ranks = pipeline,
                      .replicas = ranks / pipeline,
                      .threads_per_rank = threads,
                      .operators = &device.operators(),
                      .communication = device.communication_order()},
                     {.name = options.schedule,
                      .vocab_mode = options.vocab_mode,
                      .rule = {.chunks = options.chunks}},
                     {.microbatches = kMicrobatchesPerRank * pipeline,
                      .micro_batch_size = options.micro_batch_size,
                      .shorter_lengths = shorter_lengths,
                      .evaluation = true,
                      .optimizer = false,
                      .training = false,
                      .records = work.records,
                      .hidden_sums = work.hidden_sums});
}

/// Checks that weights and buffers of all ranks that share this one's memory fit: an error message
/// instead of a failed allocation or a killed process.
void check_memory(const StepPlan& plan, const std::vector<RankPlacement>& placements, int of_rank) {
    const RankPlacement& mine = placements[static_cast<size_t>(of_rank)];
    int64_t planned = 0;
    for (int rank = 0; rank < std::ssize(placements); ++rank) {
        const RankPlacement& place = placements[static_cast<size_t>(rank)];
        if (place.host != mine.host || place.device != mine.device) continue;
        const auto k = static_cast<size_t>(plan.mesh().pipeline_rank(rank));
        planned += persistent_bytes(plan.model, plan.partition, plan.schedule, rank).total() +
                   static_cast<int64_t>(plan.lowered.pipeline[k].arena_bytes);
    }
    const int64_t available =
        mine.memory ? static_cast<int64_t>(mine.memory->free) : available_memory();
    if (planned <= available) return;
    throw OutOfMemoryError("scoring needs " + mib_text(planned) + " on " + mine.host + ", but " +
                           mib_text(available) +
                           " are available; use a smaller --micro-batch-size, or more hosts");
}

}  // namespace

ForwardRun::ForwardRun(Communicator& world, const ForwardOptions& options, const ForwardWork& work)
    : world_(world), options_(options) {
    std::vector<std::string> same = work.same;
    std::vector<int64_t> shorter;  // lengths, descending
    world.agree([&] {
        checkpoint_.emplace(find_checkpoint(options.load, /*weights_only=*/true));
        checkpoint_->verify_metadata();
        model_ = checkpoint_->config();
        check_positions(model_, options.seq_length);
        model_.seq_length = options.seq_length;
        model_.check();
        work.records.check(model_.vocab_size);
        const TrainingData data(options.data);
        if (world.rank() == 0) {
            check_output(options, work.output, *checkpoint_, data);
            data.check(model_.vocab_size);
        }
        for (std::string& line : work.describe(data)) same.push_back(std::move(line));
        std::vector<int64_t> lengths = data.length_buckets(
            options.seq_length,
            [&](int64_t seq_length) { return layers_flops_of_sequence(model_, seq_length); });
        samples_ = data.samples_in_order(
            {.seq_length = options.seq_length, .vocab_size = model_.vocab_size}, lengths);
        if (lengths.size() > 1) {
            group_by_length();
        } else {
            groups_.push_back({options.seq_length, {}});
        }
        shorter.assign(lengths.rbegin() + 1, lengths.rend());
    });
    same.push_back("--seq-length " + std::to_string(options.seq_length));
    same.push_back("--output " + options.output);
    check_same_on_every_rank(world, same, ExitCode::input_file,
                             "use the same files and flags on every rank");
    std::vector<RankPlacement> placements = find_placements(world);
    const RankPlacement& place = placements[static_cast<size_t>(world.rank())];
    world.agree(
        [&] { device_ = options.make_device ? options.make_device(place) : make_host_device(); });
    describe_devices(world, *device_, placements);
    std::optional<StepPlan> plan;
    world.agree([&] {
        plan =
            plan_forward(options, work, model_, shorter, world.size(), *device_,
                         options.threads_per_rank > 0 ? options.threads_per_rank : place.threads());
        check_memory(*plan, placements, world.rank());
    });
    checkpoint_->verify(world);
    rank_ = std::make_unique<TrainedRank>(world, *device_, *plan,
                                          TrainedRankOptions{.initialise = false});
    world.agree([&] { checkpoint_->fill(rank_->model(), rank_->context()); });
    shape_ = {.micro_batch_size = options.micro_batch_size,
              .seq_length = options.seq_length,
              .microbatches = plan->microbatches(),
              .mesh = plan->mesh(),
              .loss_rank = plan->schedule.output.owners().front(),
              .form = samples_->form()};
}

void ForwardRun::group_by_length() {
    std::map<int64_t, std::vector<int64_t>> samples;
    for (int64_t i = 0; i < count(); ++i) samples[samples_->length(i)].push_back(i);
    for (auto& [length, alike] : samples) groups_.push_back({length, std::move(alike)});
}

void ForwardRun::each_step(const std::function<void(int64_t first)>& load,
                           const std::function<void()>& run, const std::function<void()>& keep) {
    const int64_t step = shape_.microbatches_per_step();
    int64_t done = 0;
    bool has_results = false;
    for (size_t next = 0; next < groups_.size(); ++next) {
        int64_t all = 1;  // of the group, from its first step on
        for (int64_t first = 0; first < all; first += step) {
            world_.agree([&] {
                if (has_results) keep();
                const int signal = options_.ending_signal ? options_.ending_signal() : 0;
                if (signal != 0) {
                    throw Error(static_cast<ExitCode>(128 + signal),
                                "ended by signal " + std::to_string(signal) + " before " +
                                    options_.output + " was complete; nothing was written");
                }
                group_ = next;
                all = shape_.microbatches_of(sequences());
                load(first);
            });
            run();
            has_results = true;
            done += std::min(step * options_.micro_batch_size,
                             sequences() - first * options_.micro_batch_size);
            if (world_.rank() == 0 && options_.progress) options_.progress(done, count());
        }
    }
    world_.agree([&] { keep(); });
}

}  // namespace vocabpipe
