// SPDX-License-Identifier: Apache-2.0
// One rank makes the files at full size, all ranks write their rows from a thread, then the first
// rank writes the checksums and renames the folder. poll() moves from one phase to the next.
#include "src/train/checkpoint/save_checkpoint.hpp"

#include "src/model/config_json/model_config_json.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/runtime/wait.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/read_whole_file.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/tensor_folder.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <utility>

namespace vocabpipe {

namespace {

/// A rank that waits for its own thread answers the others this often, so that none takes it for
/// lost.
constexpr std::chrono::milliseconds kAnswer{50};

std::span<const std::byte> as_bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
}

double seconds_since(int64_t begin_ns) {
    return static_cast<double>(now_ns() - begin_ns) * 1e-9;
}

/// Checksums of a file, from the sorted pieces of all ranks.
FileChecksums checksums_of(const SafetensorsPlan& plan, std::span<const Piece> pieces) {
    FileChecksums sums{.bytes = plan.file_bytes(), .head = crc32c(as_bytes(plan.header()))};
    for (const StoredTensor& tensor : plan.tensors()) {
        uint64_t bytes = 0;
        uint32_t crc = 0;
        for (; !pieces.empty() && pieces.front().end <= tensor.end; pieces = pieces.subspan(1)) {
            const Piece& piece = pieces.front();
            bytes += piece.bytes;
            crc ^= crc32c_combine(piece.crc, 0, tensor.end - piece.end);
        }
        if (bytes != tensor.end - tensor.begin) {
            throw Error(ExitCode::failed, "tensor " + tensor.name + ": ranks have written " +
                                              std::to_string(bytes) + " of its " +
                                              std::to_string(tensor.end - tensor.begin) + " bytes");
        }
        sums.tensors[tensor.name] = crc;
    }
    return sums;
}

/// The tensors of optimizer.safetensors.
std::vector<StoredTensor> optimizer_tensors(const ModelRank& model) {
    const std::vector<bool>& frozen = ModelRankInternals::frozen(model);
    std::vector<StoredTensor> stored;
    const auto all = optimizer_file_tensors(model.config());
    for (size_t id = 0; id < all.size(); ++id) {
        if (!frozen.empty() && frozen[id]) continue;
        stored.insert(stored.end(), all[id].begin(), all[id].end());
    }
    return stored;
}

}  // namespace

CheckpointSaver::CheckpointSaver(Communicator& communicator, ModelRank& model, SaveFolder* folder,
                                 SaveOptions options)
    : communicator_(communicator),
      device_(model.device()),
      folder_(folder),
      options_(std::move(options)),
      config_text_(print_model_config(model.config())) {
    for (const auto& [name, path] : options_.tokenizer) {
        if (folder_ == nullptr) break;
        tokenizer_texts_[name] = read_whole_file(path, "it goes with every saved step");
    }
    WeightFiles weights =
        plan_weight_files(model_file_tensors(model.config()), options_.max_shard_bytes);
    index_text_ = std::move(weights.index);
    names_ = std::move(weights.names);
    plans_ = std::move(weights.plans);
    names_.emplace_back(kOptimizerFile);
    plans_.emplace_back(optimizer_tensors(model), std::map<std::string, std::string>{
                                                      {"format", "vocabpipe optimizer state"}});
    rows_ = stored_rows(model, plans_);
    std::ranges::stable_sort(rows_, {}, &StoredRows::file);  // written file by file
    if (!options_.async) return;
    uint64_t bytes = 0;
    for (const StoredRows& rows : rows_) bytes += rows.bytes();
    try {
        snapshot_ = device_.allocate_staging(bytes);
    } catch (const OutOfMemoryError&) {
        throw OutOfMemoryError("--async-save: no memory for a copy of " +
                               std::to_string(bytes >> 20) +
                               " MiB; remove the flag or use more hosts");
    }
    copied_ = rows_;
    const std::byte* at = snapshot_.data();  // items stay aligned: a run has only two item sizes
    for (StoredRows& rows : copied_) {
        rows.data = at;
        at += rows.bytes();
    }
}

CheckpointSaver::~CheckpointSaver() {
    stop_ = true;
    work_ = {};  // waits for the thread
    if (pending_ && folder_ != nullptr) folder_->abandon(state_.step);
}

void CheckpointSaver::begin(TrainingState state) {
    begin_ns_ = now_ns();
    state_ = std::move(state);
    report_ = {.step = state_.step};
    publishing_ = false;
    pending_ = true;
    communicator_.agree([&] {
        if (folder_ == nullptr) return;
        folder_->begin(state_.step);
        for (size_t i = 0; i < plans_.size(); ++i) {
            SharedOutputFile::create(partial_path(i), plans_[i].file_bytes())
                .write_at(0, as_bytes(plans_[i].header()));
        }
    });
    communicator_.agree([&] {
        if (options_.async) take_snapshot();
        work_ = std::async(std::launch::async, [this] { write(); });
    });
}

std::string CheckpointSaver::partial_path(size_t file) const {
    return partial_folder(options_.root, state_.step) + "/" + names_[file];
}

uint64_t CheckpointSaver::file_bytes() const {
    uint64_t bytes = 0;
    for (const SafetensorsPlan& plan : plans_) bytes += plan.file_bytes();
    return bytes;
}

void CheckpointSaver::take_snapshot() {
    const int64_t begin = now_ns();
    std::span<std::byte> to = snapshot_.bytes();
    for (const StoredRows& rows : rows_) {
        device_.download(rows.data, to.first(rows.bytes()));
        to = to.subspan(rows.bytes());
    }
    report_.copy_seconds = seconds_since(begin);
}

void CheckpointSaver::write() {
    pieces_.clear();
    std::span<const StoredRows> rest(options_.async ? copied_ : rows_);
    for (uint32_t i = 0; i < plans_.size() && !stop_; ++i) {
        const auto end =
            std::ranges::find_if(rest, [i](const StoredRows& r) { return r.file != i; });
        const auto rows = rest.first(static_cast<size_t>(end - rest.begin()));
        rest = rest.subspan(rows.size());
        // The rank that made the files makes their headers durable, even if it has no rows in them.
        if (rows.empty() && folder_ == nullptr) continue;
        SharedOutputFile file = SharedOutputFile::open(partial_path(i));
        write_rows(rows, file, options_.async ? nullptr : &device_, stop_, pieces_);
        if (!stop_) file.sync();
    }
}

std::optional<SaveReport> CheckpointSaver::poll() {
    if (!pending_) return {};
    bool done = false;
    communicator_.agree([&] {
        if (work_.valid() &&
            work_.wait_for(std::chrono::seconds(0)) != std::future_status::timeout) {
            work_.get();
        }
        done = !work_.valid();
    });
    const auto all_done = communicator_.all_gather(std::as_bytes(std::span(&done, 1)));
    if (std::any_of(all_done.begin(), all_done.end(),
                    [](const auto& one) { return one.front() == std::byte{0}; })) {
        return {};
    }
    if (publishing_) {
        pending_ = false;
        return report_;
    }
    publishing_ = true;
    auto pieces = communicator_.all_gather(std::as_bytes(std::span(pieces_)));
    communicator_.agree([&] {
        if (folder_ == nullptr) return;
        work_ = std::async(std::launch::async, [this, all = std::move(pieces)] { publish(all); });
    });
    return {};
}

void CheckpointSaver::publish(const std::vector<std::vector<std::byte>>& pieces_of_ranks) {
    std::vector<Piece> sorted;
    for (const std::vector<std::byte>& part : pieces_of_ranks) {
        const size_t count = part.size() / sizeof(Piece);
        sorted.resize(sorted.size() + count);
        std::memcpy(sorted.data() + sorted.size() - count, part.data(), part.size());
    }
    std::sort(sorted.begin(), sorted.end(), [](const Piece& a, const Piece& b) {
        return std::pair(a.file, a.begin) < std::pair(b.file, b.begin);
    });
    const std::string partial = partial_folder(options_.root, state_.step);
    auto begin = sorted.begin();
    for (size_t i = 0; i < plans_.size(); ++i) {
        const auto end =
            std::find_if(begin, sorted.end(), [i](const Piece& p) { return p.file != i; });
        state_.files[names_[i]] = checksums_of(plans_[i], {begin, end});
        begin = end;
    }
    const auto add_text = [&](std::string_view name, const std::string& text) {
        state_.files[std::string(name)] = {.bytes = text.size(), .head = crc32c(as_bytes(text))};
        write_new_file(partial + "/" + std::string(name), text);
    };
    if (!index_text_.empty()) add_text(kModelIndex, index_text_);
    for (const auto& [name, text] : tokenizer_texts_) add_text(name, text);
    add_text(kConfigFile, config_text_);
    for (const auto& [name, file] : state_.files) report_.bytes += file.bytes;
    write_new_file(partial + "/" + std::string(kTrainingFile), print_training_state(state_));
    folder_->publish(state_.step);
    report_.seconds = seconds_since(begin_ns_);
    if (options_.total_limit > 0) folder_->keep_last(options_.total_limit);
}

std::optional<SaveReport> CheckpointSaver::finish() {
    while (pending_) {
        if (work_.valid()) work_.wait_for(kAnswer);
        if (const auto report = poll()) return report;
    }
    return {};
}

}  // namespace vocabpipe
