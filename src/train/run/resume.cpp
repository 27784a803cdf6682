// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/resume.hpp"

#include "src/runtime/gathered.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"

#include <charconv>
#include <cstdio>
#include <optional>
#include <system_error>

namespace vocabpipe {

namespace {

/// The value of a recorded "--flag value", if it is there.
std::optional<std::string> recorded(const TrainingState& state, const std::string& flag) {
    for (const std::string& line : state.flags) {
        if (line.starts_with(flag + " ")) return line.substr(flag.size() + 1);
    }
    return std::nullopt;
}

constexpr const char* kTensorRanks = "tensor-ranks";
constexpr const char* kExpertRanks = "expert-ranks";

/// The same of what some former version did not record, because there was no choice.
std::optional<std::string> value_then(const TrainingState& state, const std::string& flag) {
    std::optional<std::string> value = recorded(state, flag);
    if (!value && (flag == kTensorRanks || flag == kExpertRanks)) value = "1";
    return value;
}

/// Whether two texts mean the same: former versions wrote 0.0003 as 0.00029999999999999997, single
/// precision with as many digits, and 0 for some that were not given.
bool same_value(const std::string& then, const std::string& now) {
    if (then == now || (then == "0" && now == "not given")) return true;
    const auto number = [](const std::string& text) -> std::optional<double> {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
        return value;
    };
    const std::optional<double> a = number(then);
    const std::optional<double> b = number(now);
    return a && b && (*a == *b || *a == static_cast<double>(static_cast<float>(*b)));
}

/// Throws where the run cannot go on from the step.
void check_goes_on(const Checkpoint& checkpoint, const TrainOptions& options) {
    const TrainingState& state = *checkpoint.state();
    TrainOptions ours = options;  // rows could set it
    UnresolvedFlags unresolved;
    for (const FlagGroup& group : train_flags(ours, unresolved)) {
        for (const Flag& flag : group.flags) {
            if (flag.decides != Decides::samples) continue;
            const std::optional<std::string> theirs = recorded(state, flag.name());
            if (!theirs || *theirs == flag.text()) continue;
            throw InputFileError(checkpoint.training_path() + ": " + flag.name() + " is " +
                                 readable(*theirs) + ", but this run has " + flag.text() +
                                 ", which would change the order of the data; set " + flag.name() +
                                 " " + readable(*theirs) +
                                 ", or use --finetune to load only the weights");
        }
    }
    if (state.step >= options.train_iters && !options.evaluation.skip_train) {
        throw UsageError("--train-iters " + std::to_string(options.train_iters) + ": " +
                         checkpoint.folder() + " is already after step " +
                         std::to_string(state.step) + "; use a larger number");
    }
}

}  // namespace

// The mesh whatever it is, so that a run on another one says what changed.
std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh) {
    std::vector<std::string> flags = bit_flags(options);
    flags.push_back("ranks " + std::to_string(mesh.pipeline));
    flags.push_back("replicas " + std::to_string(mesh.data));
    flags.push_back(kTensorRanks + (" " + std::to_string(mesh.tensor)));
    flags.push_back(kExpertRanks + (" " + std::to_string(mesh.expert)));
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
    found = gathered_texts(communicator, found).front();
    std::unique_ptr<const Checkpoint> checkpoint;
    communicator.agree([&] {
        checkpoint = std::make_unique<const Checkpoint>(
            CheckpointSource{found.substr(1), found.front() == 't'});
        checkpoint->verify_metadata();  // else the damage is taken for another model or run
        check_same_model(checkpoint->config(), checkpoint->config_path(), options.model);
        if (checkpoint->state()) check_goes_on(*checkpoint, options);
    });
    checkpoint->verify(communicator);
    return checkpoint;
}

void check_same_subset(const Checkpoint& checkpoint, const std::string& ours) {
    if (!checkpoint.state()) return;
    const std::string theirs = recorded(*checkpoint.state(), kSubsetRecord).value_or("all samples");
    if (theirs == ours) return;
    throw InputFileError(checkpoint.training_path() + ": the run trained on " + readable(theirs) +
                         ", but this run trains on " + ours +
                         "; set --data-subset as it was, or use --finetune to load only the "
                         "weights");
}

void print_checkpoint(const Checkpoint& checkpoint, const std::vector<std::string>& flags) {
    if (!checkpoint.state()) {
        std::printf(
            "loaded weights of %s\n"
            "optimizer, learning rate and data start at step 1\n",
            checkpoint.folder().c_str());
        return;
    }
    const TrainingState& state = *checkpoint.state();
    std::printf(
        "loaded %s; checksums match\n"
        "continuing after step %lld and %lld samples\n",
        checkpoint.folder().c_str(), static_cast<long long>(state.step),
        static_cast<long long>(state.consumed_samples));
    std::string changed;
    for (const std::string& flag : flags) {
        const size_t end = flag.find(' ');
        const std::string now = flag.substr(end + 1);
        const std::optional<std::string> then = value_then(state, flag.substr(0, end));
        if (!then || same_value(*then, now)) continue;
        changed += "\n  " + flag + " (was " + readable(*then) + ")";
    }
    if (!changed.empty()) std::printf("changed since the run that saved it:%s\n", changed.c_str());
    std::fflush(stdout);
}

}  // namespace vocabpipe
