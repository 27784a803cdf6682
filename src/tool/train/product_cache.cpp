// SPDX-License-Identifier: Apache-2.0
#include "src/tool/train/product_cache.hpp"

#include "src/support/output_file.hpp"
#include "src/support/read_whole_file.hpp"
#include "vocabpipe/error.hpp"

#include <cublasLt.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace vocabpipe::tool {

namespace {

using kernels::cuda::ProductChoices;
using kernels::cuda::ProductShape;

constexpr const char* kIgnored = "it is ignored until it is removed";

/// The XDG base directory specification's folder, which ignores relative paths. Empty: none.
std::string cache_folder() {
    const auto folder = [](const char* variable) {
        const char* const value = std::getenv(variable);
        return std::string(value != nullptr && *value == '/' ? value : "");
    };
    if (const std::string given = folder("XDG_CACHE_HOME"); !given.empty()) {
        return given + "/vocabpipe";
    }
    const std::string home = folder("HOME");
    return home.empty() ? "" : home + "/.cache/vocabpipe";
}

/// "NVIDIA-H200" for "NVIDIA H200".
std::string as_file_name(std::string name) {
    std::ranges::replace_if(
        name,
        [](char c) {
            const bool letter = ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z');
            return !letter && !('0' <= c && c <= '9') && c != '.' && c != '_';
        },
        '-');
    return name;
}

std::string path_of(const std::string& gpu) {
    const std::string folder = cache_folder();
    if (folder.empty()) return "";
    return folder + "/products-" + as_file_name(gpu) + "-cublasLt-" +
           std::to_string(cublasLtGetVersion()) + ".txt";
}

/// Lock between processes that add to one file. It is a file of its own that stays: the other one
/// is replaced, and a lock on a replaced file excludes nobody.
class Lock {
public:
    explicit Lock(const std::string& path)
        : file_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
        if (file_ < 0) throw_output_error(path, "cannot create", errno);
        // Others hold it only for milliseconds, unless they are stopped.
        const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (::flock(file_, LOCK_EX | LOCK_NB) != 0) {
            const int error = errno;
            if (error == EINTR) continue;
            if (error == EWOULDBLOCK && std::chrono::steady_clock::now() < end) {
                std::this_thread::sleep_for(std::chrono::milliseconds(5));
                continue;
            }
            ::close(file_);
            throw_output_error(path, "cannot lock", error);
        }
    }
    ~Lock() { ::close(file_); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

private:
    int file_;
};

}  // namespace

ProductCache::ProductCache(std::string gpu, Note note)
    : gpu_(std::move(gpu)), note_(std::move(note)), path_(path_of(gpu_)) {}

bool ProductCache::exists() const {
    std::error_code none_there;
    return !path_.empty() && std::filesystem::exists(path_, none_there);
}

ProductChoices ProductCache::parse_file() const {
    return ProductChoices::parse(read_whole_file(path_, kIgnored), gpu_);
}

ProductChoices ProductCache::read() const {
    if (path_.empty()) {
        note_(
            "products: neither XDG_CACHE_HOME nor HOME names a folder; nothing that is timed "
            "will be kept");
    }
    if (!exists()) return ProductChoices(gpu_);
    try {
        return parse_file();
    } catch (const InputFileError& error) {
        const std::string what = error.what();
        const bool of_content = !what.starts_with(path_);
        note_("products: " + (of_content ? path_ + ": " + what + "; " + kIgnored : what));
        return ProductChoices(gpu_);
    }
}

ProductChoices ProductCache::add(ProductChoices timed) const {
    if (path_.empty() || timed.size() == 0) return timed;
    try {
        make_directories(std::filesystem::path(path_).parent_path().string(), "the cache folder");
        const Lock lock(path_ + ".lock");
        ProductChoices all(gpu_);
        if (exists()) all = parse_file();
        all.add_missing(timed);
        OutputFile file(path_);
        file.write(all.text());
        file.publish();
        return all;
    } catch (const InputFileError&) {  // read() has said why
        return timed;
    } catch (const Error& error) {
        note_(std::string("products: ") + error.what() + "; what was timed is not kept");
        return timed;
    }
}

std::string ProductCache::Completed::line() const {
    return "products: " + std::to_string(known) + " shapes from " +
           (file.empty() ? "no file" : file) + ", " + std::to_string(timed) + " timed now" +
           (untimed == 0 ? "" : ", " + std::to_string(untimed) + " not timed");
}

ProductCache::Completed ProductCache::complete(Context& ctx, ProductChoices known) const {
    std::vector<ProductShape> lacking = kernels::cuda::product_shapes(ctx);
    const size_t all = lacking.size();
    std::erase_if(lacking, [&](const ProductShape& shape) { return known.find(shape) != nullptr; });
    Completed completed{.choices = std::move(known), .known = all - lacking.size(), .file = path_};
    if (lacking.empty()) return completed;
    ProductChoices timed = kernels::cuda::time_products(ctx, lacking, gpu_);
    completed.timed = timed.size();
    completed.untimed = lacking.size() - timed.size();
    const ProductChoices added = add(std::move(timed));
    completed.choices.add_missing(added);
    return completed;
}

}  // namespace vocabpipe::tool
