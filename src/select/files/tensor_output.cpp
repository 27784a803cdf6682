// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/tensor_output.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace vocabpipe {

TensorOutput::TensorOutput(Communicator& world, std::string path, std::vector<StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata)
    : TensorOutput(world, std::move(path), SafetensorsPlan(std::move(tensors), metadata)) {}

TensorOutput::TensorOutput(Communicator& world, std::string path, const SafetensorsPlan& plan)
    : TensorOutput(world, std::move(path), plan.header(), plan.tensors()) {}

TensorOutput::TensorOutput(Communicator& world, std::string path, const std::string& header,
                           std::span<const StoredTensor> tensors)
    : world_(world), path_(std::move(path)) {
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
        if (!std::filesystem::exists(name, ignored)) {
            throw OutputFileError(
                path_ + ": rank " + std::to_string(world_.rank()) +
                " does not see what rank 0 writes there; use the path of a folder "
                "that all hosts share");
        }
        file_.emplace(SharedOutputFile::open(name));
    });
}

void TensorOutput::write_bytes(const std::string& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
    file_->write_at(begin_.at(tensor) + offset, bytes);
}

void TensorOutput::publish() {
    world_.agree([&] { file_->sync(); });
    world_.agree([&] {
        if (!temporary_) return;
        temporary_->publish();
        sync_folder_of(path_);
    });
}

}  // namespace vocabpipe
