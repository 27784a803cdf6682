// SPDX-License-Identifier: Apache-2.0
#include "src/select/saved_selection.hpp"

#include "src/select/files/tensor_input.hpp"
#include "src/select/files/tensor_output.hpp"
#include "src/support/output_file.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

constexpr const char* kFormat = "vocabpipe selection state 1";
constexpr const char* kFlag = "flag.";
constexpr size_t kMostRounds = 1'000'000;
constexpr size_t kMostSteps = 100'000'000;
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

nlohmann::ordered_json json_of(const MessageCount& count) {
    return {count.messages, count.sent, count.bytes};
}

MessageCount messages_from(const StrictJson& json) {
    const auto items = json.items(3);
    if (items.size() != 3) json.fail("must be three numbers");
    return {.messages = items[0].integer(0, kMost),
            .sent = items[1].integer(0, kMost),
            .bytes = items[2].integer(0, kMost)};
}

std::string text_of(const SelectionProgress& progress) {
    nlohmann::ordered_json steps = nlohmann::ordered_json::array();
    for (const BoundingStep& step : progress.bounding.steps) {
        steps.push_back({step.grow ? 1 : 0, step.threshold, step.decided});
    }
    nlohmann::ordered_json rounds = nlohmann::ordered_json::array();
    for (const RoundReport& r : progress.rounds) {
        rounds.push_back({r.round, r.input, r.target, r.parts, r.quota, r.kept, r.objective});
    }
    const BoundingReport& b = progress.bounding;
    const nlohmann::ordered_json json{
        {"steps", steps},
        {"bounding", {b.selected, b.discarded, b.k_left, b.open, b.rejoin_tuples}},
        {"bounded_objective", progress.bounded_objective},
        {"rounds", rounds},
        {"bounding_messages", json_of(progress.bounding_messages)},
        {"all_messages", json_of(progress.all_messages)},
        {"graph", std::to_string(progress.graph)},
        {"utility", std::to_string(progress.utility)}};
    return json.dump();
}

std::vector<int64_t> integers(const StrictJson& json, size_t count) {
    std::vector<int64_t> numbers;
    for (const StrictJson& item : json.items(count)) {
        numbers.push_back(item.integer(std::numeric_limits<int64_t>::min(), kMost));
    }
    if (numbers.size() != count) json.fail("must be " + std::to_string(count) + " numbers");
    return numbers;
}

SelectionProgress progress_from(const std::string& text, const std::string& name) {
    const StrictJson json = StrictJson::parse(text, name);
    SelectionProgress progress{.bounded = true};
    for (const StrictJson& item : json.at("steps").items(kMostSteps)) {
        const auto step = integers(item, 3);
        progress.bounding.steps.push_back(
            {.grow = step[0] != 0, .threshold = step[1], .decided = step[2]});
    }
    const auto bounding = integers(json.at("bounding"), 5);
    progress.bounding.selected = bounding[0];
    progress.bounding.discarded = bounding[1];
    progress.bounding.k_left = bounding[2];
    progress.bounding.open = bounding[3];
    progress.bounding.rejoin_tuples = bounding[4];
    progress.bounded_objective =
        json.at("bounded_objective").integer(std::numeric_limits<int64_t>::min(), kMost);
    for (const StrictJson& item : json.at("rounds").items(kMostRounds)) {
        const auto r = integers(item, 7);
        progress.rounds.push_back({.round = r[0],
                                   .input = r[1],
                                   .target = r[2],
                                   .parts = r[3],
                                   .quota = r[4],
                                   .kept = r[5],
                                   .objective = r[6]});
    }
    progress.bounding_messages = messages_from(json.at("bounding_messages"));
    progress.all_messages = messages_from(json.at("all_messages"));
    const auto fingerprint = [&](const char* key) {
        const auto number = parse_number<uint64_t>(json.at(key).text());
        if (!number) json.at(key).fail("must be a number");
        return *number;
    };
    progress.graph = fingerprint("graph");
    progress.utility = fingerprint("utility");
    return progress;
}

/// Samples that are read or written at once.
constexpr int64_t kBlock = 16384;

}  // namespace

SelectionFolder::SelectionFolder(Communicator& world, std::string path,
                                 std::map<std::string, std::string> flags)
    : world_(world),
      path_(std::move(path)),
      file_(path_ + "/state.safetensors"),
      flags_(std::move(flags)) {
    world_.agree([&] {
        if (world_.rank() == 0) lock();
    });
}

SelectionFolder::~SelectionFolder() {
    if (lock_ < 0) return;
    // Nothing to go on from: the folder would only be in the way.
    std::error_code ignored;
    if (!std::filesystem::exists(file_, ignored)) remove_files();
    ::close(lock_);
}

void SelectionFolder::lock() {
    const std::string name = path_ + "/lock";
    // A run that ends removes the file: one that was opened before is then another one's, or none.
    for (;;) {
        make_directories(path_, "--state");
        lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
        if (lock_ < 0 && errno == ENOENT) continue;
        if (lock_ < 0) throw_output_error(name, "cannot create", errno);
        if (::flock(lock_, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            ::close(std::exchange(lock_, -1));
            if (error != EWOULDBLOCK) throw_output_error(name, "cannot lock", error);
            throw UsageError("--state " + path_ +
                             ": another run works here; wait for its end or use another --output "
                             "or --state");
        }
        struct stat opened {};
        struct stat there {};
        if (::fstat(lock_, &opened) == 0 && ::stat(name.c_str(), &there) == 0 &&
            opened.st_ino == there.st_ino && opened.st_dev == there.st_dev) {
            return;
        }
        ::close(std::exchange(lock_, -1));
    }
}

bool SelectionFolder::load(SelectionState& state, SelectionProgress& progress) {
    std::error_code ignored;
    bool found = false;
    world_.agree([&] {
        found = std::filesystem::exists(file_, ignored);
        if (!found) return;
        const TensorInput input(file_, kFormat);
        for (const auto& [key, text] : input.metadata()) {
            if (!key.starts_with(kFlag)) continue;
            const std::string flag = key.substr(std::string_view(kFlag).size());
            const auto mine = flags_.find(flag);
            const std::string now = mine == flags_.end() ? "" : mine->second;
            if (now == text) continue;
            throw UsageError("--state " + path_ + ": was begun with " + flag + " " + text +
                             ", not " + now + "; give the same flags, or remove the folder");
        }
        const auto text = input.metadata().find("progress");
        if (text == input.metadata().end()) {
            throw InputFileError(file_ + ": metadata: progress is missing; remove the folder");
        }
        progress = progress_from(text->second, file_);
        const StoredTensor& decisions = input.at("decision", StoredType::U8, 1);
        const StoredTensor& bounds = input.at("u_max", StoredType::I64, 1);
        std::array<uint8_t, kBlock> some;
        for (int64_t v = state.first(); v < state.last(); v += kBlock) {
            const auto count = static_cast<size_t>(std::min(kBlock, state.last() - v));
            input.read(decisions, v, std::span(some).first(count));
            for (size_t i = 0; i < count; ++i) {
                if (some[i] > static_cast<uint8_t>(Decision::discarded)) {
                    throw InputFileError(file_ +
                                         ": tensor decision: is damaged; remove the "
                                         "folder");
                }
                state.decide(v + static_cast<int64_t>(i), static_cast<Decision>(some[i]));
            }
            input.read(bounds, v, std::span(&state.u_max(v), count));
        }
    });
    return found;
}

void SelectionFolder::save(const SelectionState& state, const SelectionProgress& progress) {
    std::map<std::string, std::string> metadata{{"format", kFormat},
                                                {"progress", text_of(progress)}};
    for (const auto& [flag, text] : flags_) metadata[kFlag + flag] = text;
    const int64_t nodes = sum_over_ranks(world_, state.size());
    TensorOutput output(world_, file_,
                        {{.name = "decision", .type = StoredType::U8, .shape = {nodes}},
                         {.name = "u_max", .type = StoredType::I64, .shape = {nodes}}},
                        metadata);
    world_.agree([&] {
        std::array<uint8_t, kBlock> some;
        std::array<int64_t, kBlock> bounds;
        for (int64_t v = state.first(); v < state.last(); v += kBlock) {
            const auto count = static_cast<size_t>(std::min(kBlock, state.last() - v));
            for (size_t i = 0; i < count; ++i) {
                const int64_t node = v + static_cast<int64_t>(i);
                some[i] = static_cast<uint8_t>(state.decision(node));
                bounds[i] = state.u_max(node);
            }
            output.write<uint8_t>("decision", v, std::span(some).first(count));
            output.write<int64_t>("u_max", v, std::span(bounds).first(count));
        }
    });
    output.publish();
}

void SelectionFolder::remove() {
    world_.agree([&] {
        if (world_.rank() == 0) remove_files();
    });
}

void SelectionFolder::remove_files() noexcept {
    std::error_code ignored;
    std::filesystem::remove(file_, ignored);
    std::filesystem::remove(file_ + ".partial", ignored);
    std::filesystem::remove(path_ + "/lock", ignored);
    std::filesystem::remove(path_, ignored);  // unless it holds something of others
}

}  // namespace vocabpipe
