// SPDX-License-Identifier: Apache-2.0
// The state is one safetensors file: a decision and a bound per sample; progress, flags and a
// checksum in its metadata. Nothing in it depends on the number of ranks.
#include "src/select/saved_selection.hpp"

#include "src/runtime/gathered.hpp"
#include "src/select/files/tensor_output.hpp"
#include "src/select/hash.hpp"
#include "src/select/ownership.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/durable_calls.hpp"
#include "src/support/output_file.hpp"
#include "src/support/parse_number.hpp"
#include "src/support/strict_json.hpp"
#include "vocabpipe/error.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

constexpr const char* kFormat = "vocabpipe selection state 3";
constexpr uint8_t kMarked = 4;  // flag beside a decision
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
        {"bounded", progress.bounded ? 1 : 0},
        {"parts_done", progress.parts_done},
        {"steps", steps},
        {"bounding", {b.selected, b.discarded, b.k_left, b.open, b.rejoin_tuples}},
        {"deciding_alpha", b.deciding_alpha.value_or(-1)},
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
    SelectionProgress progress;
    progress.bounded = json.at("bounded").integer(0, 1) == 1;
    progress.parts_done = json.at("parts_done").integer(0, kMost);
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
    const int64_t alpha = json.at("deciding_alpha").integer(-1, kMost);
    if (alpha >= 0) progress.bounding.deciding_alpha = alpha;
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

/// Samples per read or write.
constexpr int64_t kBlock = 16384;

/// Contents of the lock file; a file with other contents is not ours.
constexpr std::string_view kMark = "vocabpipe select run\n";
/// To open a lock file that other runs may remove.
constexpr int kMostAttempts = 1000;

/// A sample's decision and mark.
uint8_t saved_mark(const SelectionState& state, int64_t node) {
    return static_cast<uint8_t>(static_cast<uint8_t>(state.decision(node)) |
                                (state.marked(node) ? kMarked : 0));
}

/// Checksum of a state's texts; the hashes of its samples are added to it.
uint64_t checksum_of(const std::string& progress, const std::map<std::string, std::string>& flags) {
    uint32_t sum = crc32c(std::as_bytes(std::span(progress)));
    for (const auto& [flag, text] : flags) {
        sum = crc32c(std::as_bytes(std::span(flag)), sum);
        sum = crc32c(std::as_bytes(std::span(text)), sum);
    }
    return sum;
}

/// Sum of the hashes of this rank's samples; a sum does not depend on how they are spread over
/// ranks.
uint64_t checksum_of(const SelectionState& state) {
    uint64_t sum = 0;
    for (int64_t v = state.first(); v < state.last(); ++v) {
        sum += hash_of(saved_mark(state, v), static_cast<uint64_t>(v),
                       static_cast<uint64_t>(state.u_max(v)));
    }
    return sum;
}

/// The sum modulo 2^64.
uint64_t wrapped_sum(Communicator& world, uint64_t mine) {
    uint64_t sum = 0;
    for (const uint64_t part : gathered_values(world, mine)) sum += part;
    return sum;
}

}  // namespace

SelectionFolder::SelectionFolder(Communicator& world, std::string path,
                                 std::map<std::string, std::string> flags, std::string scratch)
    : world_(world),
      path_(std::move(path)),
      file_(path_ + "/state.safetensors"),
      scratch_(scratch.empty() ? path_ : scratch),
      on_every_host_(scratch.empty()),
      flags_(std::move(flags)) {
    try {
        world_.agree([&] {
            if (world_.rank() == 0) {
                lock();
            } else if (on_every_host_) {
                make_directories(path_, "--state");
            }
        });
    } catch (...) {
        leave();
        throw;
    }
}

SelectionFolder::~SelectionFolder() {
    leave();
}

void SelectionFolder::leave() noexcept {
    if (lock_ < 0) {
        // The folder is one of a host that does not share rank 0's, and empty. rmdir() leaves
        // symbolic links alone.
        if (on_every_host_ && world_.rank() != 0) ::rmdir(path_.c_str());
        return;
    }
    // Without a state there is nothing to resume: removes the folder.
    std::error_code ignored;
    if (!std::filesystem::exists(file_, ignored)) remove_files();
    ::close(lock_);
}

void SelectionFolder::lock() {
    const std::string name = path_ + "/lock";
    // A run that ends removes the file; if it was opened before that, it is no longer the lock
    // file.
    for (int attempt = 0;; ++attempt) {
        make_directories(path_, "--state");
        lock_ = ::open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (lock_ < 0 && errno == ENOENT && attempt < kMostAttempts) continue;
        if (lock_ < 0) throw_output_error(name, "cannot create", errno);
        const FileLock got = lock_file(lock_);
        locked_ = got == FileLock::held;
        if (got == FileLock::of_another) {
            ::close(std::exchange(lock_, -1));
            throw UsageError("--state " + path_ +
                             ": another run works here; wait for its end or use another --output "
                             "or --state");
        }
        struct stat opened {};
        struct stat there {};
        if (::fstat(lock_, &opened) == 0 && ::stat(name.c_str(), &there) == 0 &&
            opened.st_ino == there.st_ino && opened.st_dev == there.st_dev) {
            break;
        }
        ::close(std::exchange(lock_, -1));
    }
    mark_lock(name);
}

void SelectionFolder::mark_lock(const std::string& name) {
    std::array<char, kMark.size() + 1> text{};
    const ssize_t there = ::pread(lock_, text.data(), text.size(), 0);
    if (there > 0 && std::string_view(text.data(), static_cast<size_t>(there)) != kMark) {
        ::close(std::exchange(lock_, -1));
        throw UsageError("--state " + path_ +
                         ": has a file \"lock\" that is not of vocabpipe select "
                         "run; choose another folder");
    }
    const auto size = static_cast<ssize_t>(kMark.size());
    if (there <= 0 && ::pwrite(lock_, kMark.data(), kMark.size(), 0) != size) {
        const int error = errno;
        ::close(std::exchange(lock_, -1));
        throw_output_error(name, "cannot write", error);
    }
}

bool SelectionFolder::load(SelectionState& state, SelectionProgress& progress) {
    std::optional<TensorInput> input;  // on ranks that see rank 0's file
    std::string text, checksum;
    world_.agree([&] {
        std::error_code ignored;
        if (!std::filesystem::exists(file_, ignored)) return;
        input.emplace(file_, std::initializer_list<std::string_view>{kFormat});
        const auto entry = [&](const char* key) {
            const auto found = input->metadata().find(key);
            return found == input->metadata().end() ? std::string() : found->second;
        };
        text = entry("progress");
        checksum = entry("checksum");
    });
    // Another file may lie under the same name on another host.
    const bool found = gathered_values(world_, input ? 1 : 0).front() == 1;
    const std::vector<std::string> checksums = gathered_texts(world_, checksum);
    if (!found) return false;
    text = gathered_texts(world_, world_.rank() == 0 ? text : std::string()).front();
    if (checksum != checksums.front()) input.reset();
    world_.agree([&] {
        if (!input) return;
        for (const auto& [key, value] : input->metadata()) {
            if (!key.starts_with(kFlag)) continue;
            const std::string flag = key.substr(std::string_view(kFlag).size());
            const auto given = flags_.find(flag);
            const std::string now = given == flags_.end() ? "" : given->second;
            if (now == value) continue;
            throw UsageError("--state " + path_ + ": was begun with " + flag + " " + value +
                             ", not " + now + "; give the same flags, or remove the folder");
        }
    });
    world_.agree([&] {
        if (text.empty()) {
            throw InputFileError(file_ + ": metadata: progress is missing; remove the folder");
        }
        progress = progress_from(text, file_);
    });
    const Take take = [&](int64_t first, std::span<const uint8_t> marks,
                          std::span<const int64_t> bounds) {
        for (size_t i = 0; i < marks.size(); ++i) {
            const auto decision = static_cast<uint8_t>(marks[i] & ~kMarked);
            if (decision > static_cast<uint8_t>(Decision::discarded)) {
                throw InputFileError(file_ +
                                     ": tensor decision: is damaged; remove the "
                                     "folder");
            }
            const int64_t node = first + static_cast<int64_t>(i);
            state.decide(node, static_cast<Decision>(decision));
            if ((marks[i] & kMarked) != 0) state.mark(node);
            state.edit_u_max(node) = bounds[i];
        }
    };
    world_.agree([&] {
        if (input) read_samples(*input, state.first(), state.last(), take);
    });
    send_samples(input, state, take);
    const uint64_t expected = parse_number<uint64_t>(checksums.front()).value_or(0);
    const uint64_t sum = checksum_of(text, flags_) + wrapped_sum(world_, checksum_of(state));
    world_.agree([&] {
        if (sum == expected) return;
        throw InputFileError(file_ +
                             ": is damaged: its checksum is not that of its content; remove "
                             "the folder to begin anew");
    });
    return true;
}

void SelectionFolder::read_samples(const TensorInput& input, int64_t first, int64_t last,
                                   const Take& take) const {
    const StoredTensor& decisions = input.at("decision", StoredType::U8, 1);
    const StoredTensor& bounds = input.at("u_max", StoredType::I64, 1);
    std::vector<uint8_t> some(kBlock);  // not on the stack, which may be small
    std::vector<int64_t> of_some(kBlock);
    for (int64_t v = first; v < last; v += kBlock) {
        const auto count = static_cast<size_t>(std::min(kBlock, last - v));
        input.read(decisions, v, std::span(some).first(count));
        input.read(bounds, v, std::span(of_some).first(count));
        take(v, std::span(some).first(count), std::span(of_some).first(count));
    }
}

/// Rank 0 reads for the ranks that have no `input`, a block of each at a time. Collective.
void SelectionFolder::send_samples(const std::optional<TensorInput>& input,
                                   const SelectionState& state, const Take& take) {
    struct Need {
        int64_t first = 0, last = 0;
    };
    const std::vector<Need> needs = gathered_values(
        world_, input ? Need{} : Need{.first = state.first(), .last = state.last()});
    // One block of all ranks together is on rank 0.
    const int64_t block_length = std::max<int64_t>(kBlock / world_.size(), 1);
    int64_t blocks = 0;
    for (const Need& need : needs) {
        blocks = std::max(blocks, (need.last - need.first + block_length - 1) / block_length);
    }
    for (int64_t block = 0; block < blocks; ++block) {
        std::vector<std::vector<std::byte>> to_each(needs.size());
        world_.agree([&] {
            if (world_.rank() != 0) return;
            for (size_t rank = 0; rank < needs.size(); ++rank) {
                const int64_t first = needs[rank].first + block * block_length;
                const auto add = [&](const auto& values) {
                    const auto bytes = std::as_bytes(values);
                    to_each[rank].insert(to_each[rank].end(), bytes.begin(), bytes.end());
                };
                read_samples(
                    *input, first, std::min(first + block_length, needs[rank].last),
                    [&](int64_t, std::span<const uint8_t> marks, std::span<const int64_t> bounds) {
                        add(bounds);
                        add(marks);
                    });
            }
        });
        const std::vector<std::byte> received = world_.all_to_all(to_each).front();
        world_.agree([&] {
            if (input || received.empty()) return;
            const size_t count = received.size() / (sizeof(int64_t) + sizeof(uint8_t));
            std::vector<int64_t> bounds(count);
            std::vector<uint8_t> marks(count);
            std::memcpy(bounds.data(), received.data(), count * sizeof(int64_t));
            std::memcpy(marks.data(), received.data() + count * sizeof(int64_t), count);
            take(state.first() + block * block_length, marks, bounds);
        });
    }
}

void SelectionFolder::save(const SelectionState& state, const SelectionProgress& progress) {
    const std::string text = text_of(progress);
    const uint64_t sum = checksum_of(text, flags_) + wrapped_sum(world_, checksum_of(state));
    std::map<std::string, std::string> metadata{
        {"format", kFormat}, {"progress", text}, {"checksum", std::to_string(sum)}};
    for (const auto& [flag, text] : flags_) metadata[kFlag + flag] = text;
    const int64_t nodes = sum_over_ranks(world_, state.size());
    TensorOutput output(world_, file_,
                        {{.name = "decision", .type = StoredType::U8, .shape = {nodes}},
                         {.name = "u_max", .type = StoredType::I64, .shape = {nodes}}},
                        metadata, scratch_);
    world_.agree([&] {
        std::vector<uint8_t> some(kBlock);  // not on the stack, which may be small
        std::vector<int64_t> bounds(kBlock);
        for (int64_t v = state.first(); v < state.last(); v += kBlock) {
            const auto count = static_cast<size_t>(std::min(kBlock, state.last() - v));
            for (size_t i = 0; i < count; ++i) {
                const int64_t node = v + static_cast<int64_t>(i);
                some[i] = saved_mark(state, node);
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
    namespace fs = std::filesystem;
    std::error_code ignored, error;
    fs::remove(file_, ignored);
    // Removes what killed runs have left; no other run works here.
    const std::string partial = fs::path(file_).filename().string() + ".partial-";
    for (fs::directory_iterator at(path_, error), end; !error && at != end; at.increment(error)) {
        const std::string name = at->path().filename().string();
        if (name.starts_with(partial) || name.starts_with("scratch.partial-")) {
            fs::remove(at->path(), ignored);
        }
    }
    fs::remove(path_ + "/lock", ignored);
    std::filesystem::remove(path_, ignored);  // fails if it holds foreign files
}

}  // namespace vocabpipe
