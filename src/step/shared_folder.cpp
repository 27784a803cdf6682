// SPDX-License-Identifier: Apache-2.0
#include "src/step/shared_folder.hpp"

#include "src/runtime/gathered.hpp"
#include "src/support/temporary_file.hpp"
#include "vocabpipe/error.hpp"

#include <unistd.h>

#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <system_error>
#include <thread>

namespace vocabpipe {

namespace {

/// Waits a little: on network file systems a new name reaches other hosts late.
bool appears(const std::string& path) {
    std::error_code ignored;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    while (!std::filesystem::exists(path, ignored)) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
}

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    return name.data();
}

}  // namespace

void check_shared_folder(Communicator& communicator, const std::string& flag,
                         const std::string& folder) {
    std::optional<TemporaryFile> probe;
    std::string name;
    communicator.agree([&] {
        if (communicator.rank() != 0) return;
        probe.emplace(folder + "/.vocabpipe-probe");
        name = std::filesystem::path(probe->name()).filename().string();
    });
    name = gathered_texts(communicator, name).front();
    communicator.agree([&] {
        if (appears(folder + "/" + name)) return;
        throw UsageError(flag + " " + folder + ": rank " + std::to_string(communicator.rank()) +
                         " on " + host_name() +
                         " does not see what rank 0 writes there; use the path of a folder that "
                         "all hosts share");
    });
}

}  // namespace vocabpipe
