// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/tensor_output.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/crc32c.hpp"
#include "src/support/input_file.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <random>
#include <system_error>
#include <utility>

namespace vocabpipe {

namespace {

/// Bytes of one write that waits: few, as many ranks may send one at once.
constexpr size_t kPutOffBytes = size_t{1} << 14;
constexpr size_t kSentAtOnce = size_t{1} << 20;

uint64_t random_number() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

/// Whether there is a file that begins with `token`, or a device.
bool is_the_file(const std::string& name, uint64_t token) {
    std::error_code ignored;
    if (!std::filesystem::exists(name, ignored)) return false;
    if (!std::filesystem::is_regular_file(name, ignored)) return true;
    const InputFile file(name);
    uint64_t there = 0;
    if (file.size() < sizeof there) return false;
    file.read(0, std::as_writable_bytes(std::span(&there, 1)));
    return there == token;
}

}  // namespace

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
    // Until all ranks have looked, the file begins with a random number: a file of another run may
    // have its name on another host.
    const uint64_t token_value = random_number();
    const auto token = std::as_bytes(std::span(&token_value, 1));
    world_.agree([&] {
        if (world_.rank() != 0) return;
        std::error_code ignored;
        const bool device = std::filesystem::exists(path_, ignored) &&
                            !std::filesystem::is_regular_file(path_, ignored);
        if (!device) temporary_.emplace(path_);
        name = device ? path_ : temporary_->name();
        file_.emplace(SharedOutputFile::open(name));
        if (!device) file_->reserve(bytes);
        file_->write_at(0, token);
    });
    name = gathered_texts(world_, name).front();
    const uint64_t of_first = gathered_values(world_, token_value).front();
    world_.agree([&] {
        if (world_.rank() == 0) return;
        if (is_the_file(name, of_first)) {
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
    world_.agree([&] {
        if (world_.rank() == 0) file_->write_at(0, std::as_bytes(std::span(header)));
    });
}

void TensorOutput::write_bytes(const std::string& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
    const uint64_t begin = begin_.at(tensor) + offset;
    if (file_) return file_->write_at(begin, bytes);
    for (size_t at = 0; at < bytes.size(); at += kPutOffBytes) {
        const auto piece = bytes.subspan(at, std::min(kPutOffBytes, bytes.size() - at));
        scratch_->write(put_off_bytes_, piece);
        put_off_.push_back({.offset = begin + at,
                            .bytes = static_cast<uint32_t>(piece.size()),
                            .checksum = crc32c(piece)});
        put_off_bytes_ += piece.size();
    }
}

/// Has rank 0 write what ranks have put off, about a MiB of all of them at a time. Collective.
void TensorOutput::send_put_off() {
    const size_t at_once = kSentAtOnce / static_cast<size_t>(world_.size());
    size_t next = 0;
    uint64_t sent = 0;
    for (bool anybody = true; anybody;) {
        std::vector<std::vector<std::byte>> to_each(static_cast<size_t>(world_.size()));
        std::vector<std::byte>& to_first = to_each.front();
        world_.agree([&] {
            do {
                if (next == put_off_.size()) break;
                const PutOff& one = put_off_[next++];
                const auto head = std::as_bytes(std::span(&one, 1));
                to_first.insert(to_first.end(), head.begin(), head.end());
                to_first.resize(to_first.size() + one.bytes);
                const auto piece = std::span(to_first).last(one.bytes);
                scratch_->read(sent, piece);
                check_scratch(*scratch_, piece, one.checksum);
                sent += one.bytes;
            } while (to_first.size() < at_once);
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
