// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/tensor_output.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace vocabpipe {

TensorOutput::TensorOutput(Communicator& world, std::string path, std::vector<StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata,
                           const std::string& scratch)
    : TensorOutput(world, std::move(path), SafetensorsPlan(std::move(tensors), metadata), scratch) {
}

TensorOutput::TensorOutput(Communicator& world, std::string path, const SafetensorsPlan& plan,
                           const std::string& scratch)
    : world_(world), path_(std::move(path)) {
    open(plan.header(), plan.tensors(), scratch);
}

TensorOutput::TensorOutput(Communicator& world, std::string path, const std::string& header,
                           std::span<const StoredTensor> tensors)
    : world_(world), path_(std::move(path)) {
    open(header, tensors, {});
}

void TensorOutput::open(const std::string& header, std::span<const StoredTensor> tensors,
                        const std::string& scratch) {
    uint64_t bytes = header.size();
    for (const StoredTensor& tensor : tensors) {
        begin_[tensor.name] = tensor.begin;
        bytes = std::max(bytes, tensor.end);
    }
    std::string name;  // rank 0 chooses it
    world_.agree([&] {
        if (world_.rank() != 0) return;
        std::error_code ignored;
        const bool device = std::filesystem::exists(path_, ignored) &&
                            !std::filesystem::is_regular_file(path_, ignored);
        if (!device) temporary_.emplace(path_);
        name = device ? path_ : temporary_->name();
        file_.emplace(SharedOutputFile::open(name));
        if (!device) file_->reserve(bytes);
        file_->write_at(0, std::as_bytes(std::span(header)));
    });
    name = gathered_texts(world_, name).front();
    world_.agree([&] {
        if (world_.rank() == 0) return;
        std::error_code ignored;
        if (std::filesystem::exists(name, ignored)) {
            file_.emplace(SharedOutputFile::open(name));
        } else if (scratch.empty()) {
            throw OutputFileError(
                path_ + ": rank " + std::to_string(world_.rank()) +
                " does not see what rank 0 writes there; use the path of a folder "
                "that all hosts share");
        } else {
            scratch_.emplace(scratch, 0);
        }
    });
    for (const int sees : gathered_values(world_, file_ ? 1 : 0)) {
        all_see_it_ = all_see_it_ && sees == 1;
    }
}

void TensorOutput::write_bytes(const std::string& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
    const uint64_t begin = begin_.at(tensor) + offset;
    if (file_) return file_->write_at(begin, bytes);
    scratch_->write(put_off_bytes_, bytes);
    put_off_.push_back({.offset = begin, .bytes = bytes.size()});
    put_off_bytes_ += bytes.size();
}

/// Has rank 0 write what ranks have put off, about a MiB of each at a time. Collective.
void TensorOutput::send_put_off() {
    constexpr uint64_t kAtOnce = uint64_t{1} << 20;
    size_t next = 0;
    uint64_t sent = 0;
    for (bool anybody = true; anybody;) {
        std::vector<std::vector<std::byte>> to_each(static_cast<size_t>(world_.size()));
        std::vector<std::byte>& to_first = to_each.front();
        world_.agree([&] {
            while (next < put_off_.size() && to_first.size() < kAtOnce) {
                const PutOff& one = put_off_[next++];
                const auto head = std::as_bytes(std::span(&one, 1));
                to_first.insert(to_first.end(), head.begin(), head.end());
                to_first.resize(to_first.size() + one.bytes);
                scratch_->read(sent, std::span(to_first).last(one.bytes));
                sent += one.bytes;
            }
        });
        const auto received = world_.all_to_all(to_each);
        world_.agree([&] {
            if (world_.rank() != 0) return;
            for (const std::vector<std::byte>& from : received) {
                for (std::span<const std::byte> rest(from); !rest.empty();) {
                    PutOff one;
                    std::memcpy(&one, rest.data(), sizeof one);
                    file_->write_at(one.offset, rest.subspan(sizeof one, one.bytes));
                    rest = rest.subspan(sizeof one + one.bytes);
                }
            }
        });
        anybody = false;
        for (const int more : gathered_values(world_, next < put_off_.size() ? 1 : 0)) {
            anybody = anybody || more == 1;
        }
    }
}

void TensorOutput::publish() {
    if (!all_see_it_) send_put_off();
    world_.agree([&] {
        if (file_) file_->sync();
    });
    world_.agree([&] {
        if (!temporary_) return;
        temporary_->publish();
        sync_folder_of(path_);
    });
}

}  // namespace vocabpipe
