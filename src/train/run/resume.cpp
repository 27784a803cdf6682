// SPDX-License-Identifier: Apache-2.0
#include "src/train/run/resume.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/same_file.hpp"
#include "src/train/checkpoint/checkpoint_folder.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/options/check_options.hpp"
#include "src/train/options/train_flags.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>

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
constexpr const char* kContextRanks = "context-ranks";

/// Also for flags that earlier versions did not record, because there was no choice.
std::optional<std::string> value_then(const TrainingState& state, const std::string& flag) {
    std::optional<std::string> value = recorded(state, flag);
    const bool of_ranks = flag == kTensorRanks || flag == kExpertRanks || flag == kContextRanks ||
                          flag == "--expert-tensor-parallel-size";
    if (!value && of_ranks) value = "1";
    return value;
}

/// Whether two texts mean the same value: earlier versions wrote 0.0003 as 0.00029999999999999997,
/// floats with as many digits, and 0 for some values that were not given.
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

/// Throws if the run cannot continue from the step.
void check_goes_on(const Checkpoint& checkpoint, const TrainOptions& options) {
    const TrainingState& state = *checkpoint.state();
    TrainOptions ours = options;  // the rows need a mutable object
    UnresolvedFlags unresolved;
    for (const FlagGroup& group : train_flags(ours, unresolved)) {
        for (const Flag& flag : group.flags) {
            if (flag.decides != Decides::samples) continue;
            const std::optional<std::string> theirs = recorded(state, flag.name());
            const std::string now = flag.text().empty() ? "not given" : flag.text();
            if (!theirs || *theirs == now) continue;
            const std::string remedy = *theirs == "not given"
                                           ? "remove " + flag.name()
                                           : "set " + flag.name() + " " + readable(*theirs);
            throw InputFileError(checkpoint.training_path() + ": " + flag.name() + " is " +
                                 readable(*theirs) + ", but this run has " + now +
                                 ", which would change the order of the data; " + remedy +
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

// Records the mesh even if it is trivial, so that a run on another one can say what changed.
std::vector<std::string> bit_flags(const TrainOptions& options, Mesh mesh) {
    std::vector<std::string> flags = bit_flags(options);
    flags.push_back("ranks " + std::to_string(mesh.pipeline));
    flags.push_back("replicas " + std::to_string(mesh.data));
    flags.push_back(kTensorRanks + (" " + std::to_string(mesh.tensor)));
    flags.push_back(kExpertRanks + (" " + std::to_string(mesh.expert)));
    flags.push_back(kContextRanks + (" " + std::to_string(mesh.context)));
    return flags;
}

bool goes_on_where_it_saves(const TrainOptions& options) {
    return !options.load.empty() && !options.save.empty() && !options.finetune &&
           same_file(options.load, options.save);
}

bool passes_over_damage(const TrainOptions& options) {
    return goes_on_where_it_saves(options) && !options.evaluation.skip_train;
}

namespace {

/// The checkpoint that --load names, and older steps to try if it is damaged; newest first.
std::vector<CheckpointSource> sources(Communicator& communicator, const TrainOptions& options) {
    std::string found;  // found by one rank: others might look while a step is being saved
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        const CheckpointSource source = find_checkpoint(options.load, options.finetune);
        std::vector<std::string> folders{source.folder};
        if (passes_over_damage(options) && source.training && source.folder != options.load) {
            folders.clear();
            for (const SavedStep& step : named_steps(options.load)) {
                folders.push_back(step.folder);
            }
            std::ranges::reverse(folders);  // the newest first
        }
        for (const std::string& folder : folders) {
            found += (source.training ? 't' : 'w') + folder + '\0';
        }
    });
    found = gathered_texts(communicator, found).front();
    std::vector<CheckpointSource> all;
    for (size_t at = 0; at < found.size();) {
        const size_t end = found.find('\0', at);
        all.push_back({.folder = found.substr(at + 1, end - at - 1),
                       .training = found[at] == 't',
                       .adapter = options.load_adapter});
        at = end + 1;
    }
    return all;
}

/// Runs `read` on every rank. Returns what is wrong with the files that it reads, or empty; other
/// errors are thrown. Collective.
std::string damage(Communicator& communicator, const std::function<void()>& read) {
    std::string found;
    communicator.agree([&] {
        try {
            read();
        } catch (const OtherVersionError&) {
            throw;
        } catch (const InputFileError& error) {
            found = error.what();
        }
    });
    for (std::string& text : gathered_texts(communicator, found)) {
        if (!text.empty()) return std::move(text);
    }
    return {};
}

/// Opens the step into `opened`, or returns what is wrong with its files. Collective.
std::string open_step(Communicator& communicator, const TrainOptions& options,
                      const CheckpointSource& source, std::unique_ptr<const Checkpoint>& opened) {
    // Metadata first: otherwise their damage would look like another model or run.
    std::string wrong = damage(communicator, [&] {
        opened = std::make_unique<const Checkpoint>(source);
        opened->verify_metadata();
    });
    if (!wrong.empty()) return wrong;
    communicator.agree([&] {
        check_same_model(opened->config(), opened->config_path(), options.model);
        if (opened->state()) check_goes_on(*opened, options);
    });
    try {
        opened->verify(communicator);
    } catch (const AgreedError& error) {
        if (error.exit_code() != ExitCode::input_file) throw;
        return error.what();
    }
    return {};
}

}  // namespace

OpenedCheckpoint open_checkpoint(Communicator& communicator, const TrainOptions& options) {
    OpenedCheckpoint opened;
    const std::vector<CheckpointSource> all = sources(communicator, options);
    std::string first;
    for (const CheckpointSource& source : all) {
        std::string wrong = open_step(communicator, options, source, opened.checkpoint);
        if (wrong.empty()) return opened;
        if (first.empty()) first = wrong;
        opened.damaged.push_back({step_of_folder(source.folder).value_or(0), std::move(wrong)});
    }
    throw AgreedError(ExitCode::input_file,
                      first + (all.size() > 1 ? "; none of " + std::to_string(all.size()) +
                                                    " steps in " + options.load + " is whole"
                                              : ""));
}

void print_damaged(const std::vector<DamagedStep>& damaged, const std::string& root) {
    for (const DamagedStep& step : damaged) {
        // Drops the advice to load an older step, which the run follows by itself.
        std::printf("note: %s\n  the run goes on from an older step; this one is kept as %s\n",
                    step.what.substr(0, step.what.rfind("; load a")).c_str(),
                    damaged_folder(root, step.step).c_str());
    }
    std::fflush(stdout);
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
