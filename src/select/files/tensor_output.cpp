// SPDX-License-Identifier: Apache-2.0
#include "src/select/files/tensor_output.hpp"

#include "src/support/output_file.hpp"
#include "vocabpipe/error.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace vocabpipe {

TensorOutput::TensorOutput(Communicator& world, std::string path, std::vector<StoredTensor> tensors,
                           const std::map<std::string, std::string>& metadata)
    : world_(world),
      path_(std::move(path)),
      // One name on all ranks. What a killed run has left under it is replaced.
      temporary_(path_ + ".partial"),
      plan_(std::move(tensors), metadata) {
    try {
        world_.agree([&] {
            if (world_.rank() != 0) return;
            ::unlink(temporary_.c_str());
            file_.emplace(SharedOutputFile::create(temporary_, plan_.file_bytes()));
            file_->write_at(0, std::as_bytes(std::span(plan_.header())));
        });
        world_.agree([&] {
            if (world_.rank() != 0) file_.emplace(SharedOutputFile::open(temporary_));
        });
    } catch (...) {  // a full disk, for one: there will be no destructor
        if (world_.rank() == 0) ::unlink(temporary_.c_str());
        throw;
    }
}

TensorOutput::~TensorOutput() {
    if (!published_ && world_.rank() == 0) ::unlink(temporary_.c_str());
}

void TensorOutput::write_bytes(const std::string& tensor, uint64_t offset,
                               std::span<const std::byte> bytes) {
    file_->write_at(plan_.at(tensor).begin + offset, bytes);
}

void TensorOutput::publish() {
    world_.agree([&] { file_->sync(); });
    world_.agree([&] {
        if (world_.rank() != 0) return;
        if (std::rename(temporary_.c_str(), path_.c_str()) != 0) {
            throw_output_error(path_, "cannot create", errno);
        }
        sync_folder_of(path_);
    });
    published_ = true;
}

}  // namespace vocabpipe
