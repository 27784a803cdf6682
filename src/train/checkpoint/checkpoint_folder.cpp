// SPDX-License-Identifier: Apache-2.0
#include "src/train/checkpoint/checkpoint_folder.hpp"

#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/tokenizer_files.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "src/train/checkpoint/training_state.hpp"
#include "src/train/checkpoint/weight_files.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kPrefix = "step-";
constexpr std::string_view kPartial = ".partial";  // being written
constexpr std::string_view kRemoved = ".removed";  // being removed
constexpr std::array kFiles{kModelFile, kModelIndex, kOptimizerFile, kConfigFile, kTrainingFile};

bool is_our_file(std::string_view name) {
    const auto has = [&](const auto& names) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    return is_shard_name(name) || has(kFiles) || has(kTokenizerFiles);
}

bool exists(const std::string& path) {
    std::error_code ignored;
    return fs::exists(path, ignored);
}

std::string file_in(const std::string& folder, std::string_view name) {
    return folder + "/" + std::string(name);
}

std::string step_name(int64_t step) {
    char digits[24];
    std::snprintf(digits, sizeof digits, "%08lld", static_cast<long long>(step));
    return std::string(kPrefix) + digits;
}

/// The step of "step-00000100"; none for any other name.
std::optional<int64_t> step_of(std::string_view name) {
    if (!name.starts_with(kPrefix)) return std::nullopt;
    const std::optional<int64_t> step = parse_number<int64_t>(name.substr(kPrefix.size()));
    return step && *step > 0 && step_name(*step) == name ? step : std::nullopt;
}

/// Names of the folders in a folder; none if it cannot be read.
std::vector<std::string> folders_in(const std::string& root) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
        std::error_code ignored;
        if (at->is_directory(ignored) && !at->is_symlink(ignored)) {
            names.push_back(at->path().filename().string());
        }
    }
    return names;
}

bool has_only_our_files(const std::string& folder) {
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (!is_our_file(name)) return false;
    }
    return !error;
}

/// The first entry of `root`, of any kind, whose name a save after `start_step` would need. Folders
/// of the steps `making_room` do not count.
std::optional<std::string> in_the_way(const std::string& root, int64_t start_step,
                                      const std::vector<int64_t>& making_room) {
    std::error_code error;
    for (fs::directory_iterator at(root, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        std::error_code ignored;
        const int64_t step = step_of(name).value_or(0);
        const bool makes_room =
            std::ranges::find(making_room, step) != making_room.end() && !at->is_symlink(ignored);
        if (step > start_step && !makes_room) return name;
        const std::string_view rest(name);
        if (!rest.starts_with(".") || !rest.ends_with(kPartial)) continue;
        const auto partial = step_of(rest.substr(1, rest.size() - 1 - kPartial.size()));
        const bool ours = at->is_directory(ignored) && !at->is_symlink(ignored) &&
                          has_only_our_files(at->path().string());
        if (partial.value_or(0) > start_step && !ours) return name;
    }
    return std::nullopt;
}

/// Removes our files by name, then the folder, which stays if it holds anything else.
void remove_ours(const std::string& folder) noexcept {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        std::string name = at->path().filename().string();
        if (is_our_file(name)) names.push_back(std::move(name));
    }
    for (const std::string& name : names) ::unlink(file_in(folder, name).c_str());
    ::rmdir(folder.c_str());
}

}  // namespace

std::optional<int64_t> step_of_folder(const std::string& folder) {
    return step_of(fs::path(folder).filename().string());
}

std::string step_folder(const std::string& root, int64_t step) {
    return root + "/" + step_name(step);
}

std::string partial_folder(const std::string& root, int64_t step) {
    return root + "/." + step_name(step) + std::string(kPartial);
}

std::string damaged_folder(const std::string& root, int64_t step) {
    const std::string first = root + "/damaged-" + step_name(step);
    std::string name = first;
    for (int i = 2; exists(name); ++i) name = first + "-" + std::to_string(i);
    return name;
}

std::vector<SavedStep> complete_steps(const std::string& root) {
    std::vector<SavedStep> steps = named_steps(root);
    std::erase_if(
        steps, [](const SavedStep& step) { return !exists(file_in(step.folder, kTrainingFile)); });
    return steps;
}

std::vector<SavedStep> named_steps(const std::string& root) {
    std::vector<SavedStep> steps;
    for (const std::string& name : folders_in(root)) {
        if (const auto step = step_of(name)) steps.push_back({*step, root + "/" + name});
    }
    std::sort(steps.begin(), steps.end(),
              [](const SavedStep& a, const SavedStep& b) { return a.step < b.step; });
    return steps;
}

CheckpointSource find_checkpoint(const std::string& path, bool weights_only) {
    const auto refuse = [&](const std::string& what) { throw InputFileError(path + ": " + what); };
    std::error_code ignored;
    if (!fs::is_directory(path, ignored)) {
        refuse(exists(path) ? "is a file; use its folder"
                            : "does not exist; use a folder written by train_gpt --save or a "
                              "Hugging Face model (a new run needs no --load)");
    }
    if (exists(file_in(path, kTrainingFile))) return {path, !weights_only};
    const std::vector<SavedStep> steps = complete_steps(path);
    if (!steps.empty()) return {steps.back().folder, !weights_only};
    if (exists(file_in(path, kConfigFile))) {
        if (exists(file_in(path, kModelFile)) || exists(file_in(path, kModelIndex))) {
            return {path, false};
        }
        refuse("has config.json but neither model.safetensors nor " + std::string(kModelIndex) +
               (exists(file_in(path, "pytorch_model.bin"))
                    ? "; pickled weights are never read; save them as safetensors"
                    : "; download the weights into the same folder"));
    }
    if (exists(file_in(path, kAdapterConfigFile))) {
        refuse(
            "holds adapters without their model; load the model and give this folder to "
            "--load-adapter");
    }
    if (const std::vector<SavedStep> named = named_steps(path); !named.empty()) {
        refuse("holds no complete saved step: " + step_name(named.back().step) + " has no " +
               std::string(kTrainingFile) + "; move it away to begin a new run");
    }
    const std::vector<std::string> names = folders_in(path);
    const bool unfinished = std::any_of(names.begin(), names.end(), [](const std::string& name) {
        return name.starts_with(".step-") && name.ends_with(kPartial);
    });
    refuse(
        unfinished
            ? "holds no complete saved step, because no save in it finished"
            : "holds neither a complete saved step (step-NNNNNNNN) nor the config.json of a model");
    return {};
}

bool is_before_first_step(const std::string& path) {
    if (!exists(path)) return true;
    std::error_code ignored;
    return fs::is_directory(path, ignored) && !exists(file_in(path, kTrainingFile)) &&
           !exists(file_in(path, kConfigFile)) && named_steps(path).empty();
}

SaveFolder::SaveFolder(std::string root, int64_t start_step, const std::string& loaded_from,
                       std::vector<int64_t> damaged)
    : root_(std::move(root)), start_step_(start_step), damaged_(std::move(damaged)) {
    make_directories(root_, "--save");
    if (::access(root_.c_str(), W_OK | X_OK) != 0) {
        throw_output_error("--save " + root_, "cannot write", errno);
    }
    lock_ = ::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const FileLock lock = lock_ < 0 ? FileLock::unsupported : lock_file(lock_);
    locked_ = lock == FileLock::held;
    if (lock == FileLock::of_another) {
        ::close(lock_);
        throw UsageError("--save " + root_ +
                         ": another run is saving to it; choose another folder");
    }
    if (const auto name = in_the_way(root_, start_step, damaged_)) {
        ::close(lock_);
        throw UsageError("--save " + root_ + ": already holds " + *name +
                         ", which a run that starts after step " + std::to_string(start_step) +
                         " would save again; resume with --load " + root_ +
                         " or choose another folder");
    }
    std::error_code ignored;
    continues_ = !loaded_from.empty() &&
                 fs::equivalent(fs::path(loaded_from + "/..").lexically_normal(), root_, ignored);
}

SaveFolder::~SaveFolder() {
    if (lock_ >= 0) ::close(lock_);
}

void SaveFolder::remove_leftovers() noexcept {
    for (const std::string& name : folders_in(root_)) {
        const std::string_view rest(name);
        if (!rest.starts_with(".step-")) continue;
        for (const std::string_view end : {kPartial, kRemoved}) {
            if (!rest.ends_with(end)) continue;
            const auto step = step_of(rest.substr(1, rest.size() - 1 - end.size()));
            if (step) remove_ours(root_ + "/" + name);
        }
    }
}

void SaveFolder::set_aside() {
    for (const int64_t step : damaged_) {
        const std::string aside = damaged_folder(root_, step);
        if (const int error = rename_file(step_folder(root_, step), aside); error != 0) {
            throw_output_error(aside, "cannot create", error);
        }
        sync_folder_of(aside);
    }
    damaged_.clear();
}

void SaveFolder::begin(int64_t step) {
    remove_leftovers();
    const std::string folder = partial_folder(root_, step);
    if (::mkdir(folder.c_str(), 0777) != 0) throw_output_error(folder, "cannot create", errno);
}

void SaveFolder::publish(int64_t step) {
    const std::string partial = partial_folder(root_, step);
    const std::string folder = step_folder(root_, step);
    sync_folder_of(file_in(partial, kTrainingFile));
    if (const int error = rename_file(partial, folder); error != 0) {
        throw_output_error(folder, "cannot create", error);
    }
    sync_folder_of(folder);
}

void SaveFolder::abandon(int64_t step) noexcept {
    remove_ours(partial_folder(root_, step));
}

void SaveFolder::keep_last(int64_t count) {
    std::vector<SavedStep> steps = complete_steps(root_);
    if (!continues_) {
        std::erase_if(steps, [this](const SavedStep& s) { return s.step <= start_step_; });
    }
    const int64_t excess = std::ssize(steps) - count;
    for (int64_t i = 0; i < excess; ++i) {
        const SavedStep& old = steps[static_cast<size_t>(i)];
        if (!has_only_our_files(old.folder)) continue;
        // Rename first: a step that lacks files must not look like one.
        const std::string removed = root_ + "/." + step_name(old.step) + std::string(kRemoved);
        if (rename_file(old.folder, removed) == 0) remove_ours(removed);
    }
}

}  // namespace vocabpipe
