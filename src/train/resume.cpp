// SPDX-License-Identifier: Apache-2.0
#include "src/train/resume.hpp"

#include "src/train/check_options.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <string_view>

namespace vocabpipe {

namespace {

/// Flags that say where, when and how often, but nothing of the weights.
constexpr std::array<std::string_view, 11> kWithoutBits{
    "--save",
    "--async-save",
    "--max-shard-size",
    "--load",
    "--finetune",
    "--exit-interval",
    "--check-for-nan",
    "--eval-",
    "--skip-train",
    "--multiple-choice-",
    "--pipeline-model-",  // "ranks" and "replicas" say it
};

/// Throws where the run cannot go on from the step.
void check_goes_on(const Checkpoint& checkpoint, const TrainOptions& options) {
    const TrainingState& state = *checkpoint.state();
    const auto same = [&](const char* key, const std::string& theirs, const std::string& ours,
                          const char* flag) {
        if (theirs == ours) return;
        throw InputFileError(checkpoint.training_path() + ": " + key + " is " + theirs +
                             ", this run has " + ours + ", which means other data; give " + flag +
                             " " + theirs + ", or --finetune to begin again with the weights");
    };
    same("seq_length", std::to_string(state.seq_length), std::to_string(options.model.seq_length),
         "--seq-length");
    same("seed", std::to_string(state.seed), std::to_string(options.seed), "--seed");
    if (state.step >= options.train_iters && !options.evaluation.skip_train) {
        throw UsageError("--train-iters " + std::to_string(options.train_iters) + ": " +
                         checkpoint.folder() + " is after step " + std::to_string(state.step) +
                         " already; give a larger number");
    }
}

}  // namespace

std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh) {
    std::vector<std::string> flags = shared_flags(options);
    std::erase_if(flags, [](const std::string& flag) {
        return std::ranges::any_of(kWithoutBits,
                                   [&](std::string_view name) { return flag.starts_with(name); });
    });
    flags.push_back("ranks " + std::to_string(mesh.pipeline));
    flags.push_back("replicas " + std::to_string(mesh.data));
    return flags;
}

std::unique_ptr<const Checkpoint> open_checkpoint(Communicator& communicator,
                                                  const TrainOptions& options) {
    std::string found;  // by one rank: another may look while a step is being saved
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        const CheckpointSource source = find_checkpoint(options.load, options.finetune);
        found = (source.training ? 't' : 'w') + source.folder;
    });
    const std::vector<std::byte> first =
        communicator.all_gather(std::as_bytes(std::span(found))).front();
    found.assign(reinterpret_cast<const char*>(first.data()), first.size());
    std::unique_ptr<const Checkpoint> checkpoint;
    communicator.agree([&] {
        checkpoint = std::make_unique<const Checkpoint>(
            CheckpointSource{found.substr(1), found.front() == 't'});
        check_same_model(checkpoint->config(), checkpoint->config_path(), options.model);
        if (checkpoint->state()) check_goes_on(*checkpoint, options);
    });
    checkpoint->verify(communicator);
    return checkpoint;
}

void print_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& flags) {
    if (!checkpoint.state()) {
        std::printf("loaded weights of %s\noptimizer, learning rate and data begin at step 1\n",
                    checkpoint.folder().c_str());
        return;
    }
    const TrainingState& state = *checkpoint.state();
    std::printf("loaded %s; checksums are right\ngoes on after step %lld and %lld samples\n",
                checkpoint.folder().c_str(), static_cast<long long>(state.step),
                static_cast<long long>(state.consumed_samples));
    std::string changed;
    for (const std::string& flag : flags) {
        const std::string name = flag.substr(0, flag.find(' ') + 1);
        const auto then =
            std::find_if(state.flags.begin(), state.flags.end(),
                         [&](const std::string& other) { return other.starts_with(name); });
        if (then == state.flags.end() || *then == flag) continue;
        changed += "\n  " + flag + " (was " + readable(then->substr(name.size())) + ")";
    }
    if (!changed.empty()) std::printf("not as in the run that saved it:%s\n", changed.c_str());
    std::fflush(stdout);
}

}  // namespace vocabpipe
