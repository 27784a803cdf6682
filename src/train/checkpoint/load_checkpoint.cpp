// SPDX-License-Identifier: Apache-2.0
// Opening checks headers and JSON; verify() compares checksums, for which every rank reads an equal
// share of all bytes; fill() reads the rows of one rank.
#include "src/train/checkpoint/load_checkpoint.hpp"

#include "src/model/adapters.hpp"
#include "src/model/config_json/model_config_json.hpp"
#include "src/model/model_rank_internals.hpp"
#include "src/support/crc32c.hpp"
#include "src/train/checkpoint/adapter_config.hpp"
#include "src/train/checkpoint/model_config_file.hpp"
#include "src/train/checkpoint/model_tensors.hpp"
#include "src/train/checkpoint/row_reader.hpp"
#include "vocabpipe/error.hpp"
#include "vocabpipe/operators.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

namespace vocabpipe {

namespace {

constexpr uint64_t kReadBytes = 1 << 18;  // of a file, per checksum update

std::string text_of(const std::string& path) {
    return InputFile(path).text();
}

std::string file_name(const SafetensorsFile& file) {
    return std::filesystem::path(file.path()).filename().string();
}

[[noreturn]] void refuse(const std::string& path, const std::string& tensor,
                         const std::string& what) {
    throw InputFileError(path + ": tensor " + readable(tensor) + ": " + what);
}

}  // namespace

Checkpoint::Checkpoint(const CheckpointSource& source)
    : folder_(source.folder),
      config_(source.own_layers != nullptr
                  ? *source.own_layers
                  : parse_model_config(text_of(config_path()), config_path())),
      weights_(folder_) {
    leave_out_missing_depths(weights_, config_);
    std::error_code ignored;
    if (source.training || std::filesystem::exists(training_path(), ignored)) {
        recorded_ = parse_training_state(text_of(training_path()), training_path());
    }
    if (source.training) {
        state_ = recorded_;
        config_.dtype = state_->dtype == "bf16" ? DType::bf16 : DType::fp32;
        optimizer_ = std::make_unique<SafetensorsFile>(folder_ + "/" + std::string(kOptimizerFile));
    }
    if (!source.adapter.empty()) read_adapters(source.adapter);
    check_adapters_of_file();
    named_.emplace(weights_, config_, adapters_.get());
    if (optimizer_) check_optimizer();
    if (recorded_) check_files();
}

void Checkpoint::read_adapters(const std::string& folder) {
    if (config_.lora.rank > 0) {
        throw InputFileError(config_path() + ": the step has adapters of its own; leave out " +
                             folder + ", or merge the step's with vocabpipe checkpoint convert");
    }
    config_.lora = load_adapter_config(folder);
    adapters_ = std::make_unique<SafetensorsFile>(folder + "/" + std::string(kAdapterFile));
}

void Checkpoint::check_adapters_of_file() const {
    try {
        check_adapters(config_);
    } catch (const UsageError& error) {
        const std::string path = adapters_ ? adapters_->path() : config_path();
        throw InputFileError(path + ": " + error.what());
    }
}

std::string Checkpoint::config_path() const {
    return folder_ + "/" + std::string(kConfigFile);
}

bool Checkpoint::has_index() const {
    return weights_.path() == folder_ + "/" + std::string(kModelIndex);
}

std::string Checkpoint::training_path() const {
    return folder_ + "/" + std::string(kTrainingFile);
}

void Checkpoint::check_optimizer() const {
    std::set<const StoredTensor*> used;
    for (const std::vector<StoredTensor>& of_parameter : optimizer_file_tensors(config_)) {
        const bool was_frozen = std::ranges::none_of(of_parameter, [&](const StoredTensor& t) {
            return optimizer_->find(t.name) != nullptr;
        });
        if (was_frozen) continue;
        for (const StoredTensor& t : of_parameter) {
            const StoredTensor* const found = optimizer_->find(t.name);
            if (found == nullptr) {
                refuse(optimizer_->path(), t.name, "is missing; load another step");
            }
            check_tensor({optimizer_.get(), found}, t.shape, false);
            used.insert(found);
        }
    }
    for (const StoredTensor& t : optimizer_->header().tensors) {
        if (used.contains(&t)) continue;
        refuse(optimizer_->path(), t.name,
               "belongs to no weight of the model that " + std::string(kConfigFile) +
                   " describes; load another step");
    }
}

/// Compares sizes and names with those in the training state.
void Checkpoint::check_files() const {
    const auto check = [&](std::string_view name, uint64_t bytes,
                           const std::vector<StoredTensor>& tensors) {
        const std::string path = folder_ + "/" + std::string(name);
        const auto expected = recorded_->files.find(std::string(name));
        if (expected == recorded_->files.end()) {
            throw InputFileError(training_path() + ": has no checksums for " + std::string(name) +
                                 "; load another step");
        }
        if (expected->second.bytes != bytes) {
            throw InputFileError(path + ": has " + std::to_string(bytes) + " bytes, but " +
                                 std::string(kTrainingFile) + " records " +
                                 std::to_string(expected->second.bytes) +
                                 "; it is not the file that was saved; load another step");
        }
        for (const StoredTensor& t : tensors) {
            if (expected->second.tensors.contains(t.name)) continue;
            refuse(path, t.name,
                   std::string(kTrainingFile) + " has no checksum for it; load another step");
        }
    };
    check(kConfigFile, text_of(config_path()).size(), {});
    if (optimizer_) {
        check(kOptimizerFile, optimizer_->size(), optimizer_->header().tensors);
    }
    if (has_index()) check(kModelIndex, text_of(weights_.path()).size(), {});
    for (const auto& file : weights_.files()) {
        check(file_name(*file), file->size(), file->header().tensors);
    }
}

/// A range of bytes with one checksum.
struct Checkpoint::Part {
    const SafetensorsFile* file = nullptr;
    uint64_t begin = 0, bytes = 0;
    std::string what;  ///< "FILE: header" or "FILE: tensor NAME"
    uint32_t crc = 0;
};

std::vector<Checkpoint::Part> Checkpoint::parts() const {
    std::vector<Part> all;
    const auto add = [&](const SafetensorsFile* file) {
        const FileChecksums& sums = recorded_->files.at(file_name(*file));
        all.push_back({file, 0, file->header().data_begin, file->path() + ": header", sums.head});
        for (const StoredTensor& t : file->header().tensors) {
            all.push_back({file, t.begin, t.end - t.begin,
                           file->path() + ": tensor " + readable(t.name), sums.tensors.at(t.name)});
        }
    };
    for (const auto& file : weights_.files()) add(file.get());
    if (optimizer_) add(optimizer_.get());
    return all;
}

namespace {

/// The checksum of a rank's share of a part.
struct PartSum {
    uint64_t part = 0, bytes = 0;
    uint32_t crc = 0;
    uint32_t unused = 0;  // no padding: ranks send it
};

/// Checksum of a range of a file, read in pieces that stay in the cache.
uint32_t checksum_of(const SafetensorsFile& of, uint64_t begin, uint64_t bytes,
                     std::vector<std::byte>& buffer, const std::function<void()>& poll) {
    const InputFile file = of.open();
    uint32_t crc = 0;
    for (uint64_t done = 0; done < bytes; done += buffer.size()) {
        if (poll) poll();
        buffer.resize(std::min(kReadBytes, bytes - done));
        file.read(begin + done, buffer);
        crc = crc32c(buffer, crc);
    }
    return crc;
}

[[noreturn]] void refuse_damage(const std::string& what) {
    throw InputFileError(what +
                         ": the checksum (CRC-32C) does not match training.json; the file is "
                         "damaged; load an older step");
}

}  // namespace

void Checkpoint::verify_metadata() const {
    if (!recorded_) return;
    const auto check_text = [&](const std::string& path, std::string_view name) {
        const std::string text = text_of(path);
        if (crc32c(std::as_bytes(std::span(text))) == recorded_->files.at(std::string(name)).head) {
            return;
        }
        refuse_damage(path);
    };
    check_text(config_path(), kConfigFile);
    if (has_index()) check_text(weights_.path(), kModelIndex);
    std::vector<std::byte> buffer;
    for (const Part& part : parts()) {
        if (part.begin == 0 && checksum_of(*part.file, 0, part.bytes, buffer, {}) != part.crc) {
            refuse_damage(part.what);
        }
    }
}

void Checkpoint::verify(Communicator& communicator, const std::function<void()>& poll) const {
    if (named_->stored_twice()) {
        communicator.agree([&] {
            named_->compare_tied(static_cast<uint64_t>(communicator.rank()),
                                 static_cast<uint64_t>(communicator.size()), poll);
        });
    }
    if (!recorded_) return;
    const std::vector<Part> all = parts();
    uint64_t total = 0;
    for (const Part& part : all) total += part.bytes;
    const auto ranks = static_cast<uint64_t>(communicator.size());
    const auto rank = static_cast<uint64_t>(communicator.rank());
    const uint64_t share = total / ranks + 1;
    const uint64_t first = std::min(total, share * rank);
    const uint64_t last = std::min(total, first + share);
    std::vector<PartSum> mine;
    communicator.agree([&] {
        std::vector<std::byte> buffer;
        uint64_t at = 0;
        for (size_t i = 0; i < all.size(); at += all[i].bytes, ++i) {
            const uint64_t begin = std::max(at, first);
            const uint64_t end = std::min(at + all[i].bytes, last);
            if (begin >= end) continue;
            mine.push_back({.part = i,
                            .bytes = end - begin,
                            .crc = checksum_of(*all[i].file, all[i].begin + begin - at, end - begin,
                                               buffer, poll)});
        }
    });
    const auto gathered = communicator.all_gather(std::as_bytes(std::span(mine)));
    communicator.agree([&] {
        verify_metadata();
        std::vector<uint32_t> found(all.size(), 0);
        for (const std::vector<std::byte>& of_rank : gathered) {
            std::vector<PartSum> sums(of_rank.size() / sizeof(PartSum));
            std::memcpy(sums.data(), of_rank.data(), of_rank.size());
            for (const PartSum& sum : sums) {
                found[sum.part] = crc32c_combine(found[sum.part], sum.crc, sum.bytes);
            }
        }
        for (size_t i = 0; i < all.size(); ++i) {
            if (found[i] != all[i].crc) refuse_damage(all[i].what);
        }
    });
}

void Checkpoint::verify(const std::function<void()>& poll) const {
    World::threads(1).run([&](Communicator& alone) { verify(alone, poll); });
}

void Checkpoint::fill(ModelRank& model, Context& ctx) const {
    Device& device = model.device();
    const std::vector<std::vector<ModelTensor>> stored = model_tensors(model.config());
    std::vector<Parameter>& parameters = ModelRankInternals::store(model).parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
        Parameter& p = parameters[i];
        if (ModelRankInternals::store(model).shares_weight(i)) continue;
        const auto& tensors =
            stored[static_cast<size_t>(ModelRankInternals::store(model).ids()[i])];
        if (!named_->has(tensors.front().name)) continue;  // a new adapter
        const Tensor values = ModelRankInternals::store(model).values_of(i);
        for (const ModelTensor& t : tensors) {
            const std::vector<HeldRows> held = held_rows(p, t);
            if (held.empty()) continue;
            RowReader reader(device, weight(t.name), t.transposed, t.held_shape[0]);
            for (const HeldRows& rows : held) reader.read(rows, rows.of(values));
        }
        ModelRankInternals::store(model).take_values(ctx, i);
        if (!optimizer_) continue;
        for (const ModelTensor& t : tensors) {
            const std::vector<HeldRows> owned = owned_rows(p, t);
            const auto read = [&](const std::string& name, Tensor to) {
                const StoredTensor* const tensor = optimizer_->find(name);
                if (tensor == nullptr || !to || owned.empty()) return;
                RowReader reader(device, {optimizer_.get(), tensor}, false, t.held_shape[0]);
                for (const HeldRows& rows : owned) reader.read(rows, rows.of(to));
            };
            read(master_name(t.name), p.master);  // the weights are its rounded copy
            read(exp_avg_name(t.name), p.exp_avg);
            read(exp_avg_sq_name(t.name), p.exp_avg_sq);
        }
    }
}

}  // namespace vocabpipe
