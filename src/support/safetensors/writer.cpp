// SPDX-License-Identifier: Apache-2.0
#include "src/support/safetensors/writer.hpp"

#include "src/support/durable_calls.hpp"
#include "src/support/json_text.hpp"
#include "src/support/output_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

namespace vocabpipe {

namespace {

constexpr size_t kAlignment = 8;  // of the data; readers that map the file rely on it

}  // namespace

SafetensorsPlan::SafetensorsPlan(std::vector<StoredTensor> tensors,
                                 const std::map<std::string, std::string>& metadata)
    : tensors_(std::move(tensors)) {
    std::sort(tensors_.begin(), tensors_.end(), [](const StoredTensor& a, const StoredTensor& b) {
        const uint64_t size_a = item_size(a.type);
        const uint64_t size_b = item_size(b.type);
        return size_a != size_b ? size_a > size_b : a.name < b.name;
    });
    nlohmann::ordered_json json = nlohmann::ordered_json::object();
    if (!metadata.empty()) json["__metadata__"] = metadata;
    uint64_t at = 0;
    for (size_t i = 0; i < tensors_.size(); ++i) {
        StoredTensor& t = tensors_[i];
        uint64_t bytes = item_size(t.type);
        for (const int64_t size : t.shape) bytes *= static_cast<uint64_t>(size);
        t.begin = at;
        t.end = at += bytes;
        json[t.name] = {
            {"dtype", name_of(t.type)}, {"shape", t.shape}, {"data_offsets", {t.begin, t.end}}};
        index_[t.name] = i;
    }
    std::string text = json_text(json);
    text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
    const uint64_t length = text.size();
    header_.resize(sizeof length);
    std::memcpy(header_.data(), &length, sizeof length);
    header_ += text;
    for (StoredTensor& t : tensors_) {
        t.begin += header_.size();
        t.end += header_.size();
    }
    file_bytes_ = header_.size() + at;
}

SharedOutputFile::SharedOutputFile(std::string path, int flags) : path_(std::move(path)) {
    file_ = ::open(path_.c_str(), flags | O_WRONLY | O_CLOEXEC, 0666);
    if (file_ < 0) {
        throw_output_error(path_, (flags & O_CREAT) != 0 ? "cannot create" : "cannot open", errno);
    }
}

SharedOutputFile SharedOutputFile::create(const std::string& path, uint64_t bytes) {
    SharedOutputFile file(path, O_CREAT | O_EXCL);
    file.reserve(bytes);
    return file;
}

void SharedOutputFile::reserve(uint64_t bytes) {
    // Not posix_fallocate(), which writes every block itself if the file system does not support
    // it.
    const bool reserved = ::fallocate(file_, 0, 0, static_cast<off_t>(bytes)) == 0;
    if (!reserved && (errno == ENOSPC || errno == EDQUOT || errno == EFBIG)) {
        throw_output_error(path_, "cannot write", errno);
    }
    if (::ftruncate(file_, static_cast<off_t>(bytes)) != 0) {
        throw_output_error(path_, "cannot write", errno);
    }
}

SharedOutputFile SharedOutputFile::open(const std::string& path) {
    return {path, 0};
}

SharedOutputFile::~SharedOutputFile() {
    if (file_ >= 0) ::close(file_);
}

SharedOutputFile::SharedOutputFile(SharedOutputFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

void SharedOutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written =
            ::pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (written < 0 && errno != EINTR) throw_output_error(path_, "cannot write", errno);
        const auto done = static_cast<size_t>(written > 0 ? written : 0);
        bytes = bytes.subspan(done);
        offset += done;
    }
}

void SharedOutputFile::sync() {
    const int error = sync_descriptor(file_);
    if (error != 0 && error != EINVAL) {  // devices cannot be synced
        throw_output_error(path_, "cannot write", error);
    }
}

void write_new_file(const std::string& path, const std::string& text) {
    SharedOutputFile file = SharedOutputFile::create(path, text.size());
    file.write_at(0, std::as_bytes(std::span(text)));
    file.sync();
}

}  // namespace vocabpipe
