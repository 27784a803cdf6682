// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <exception>
#include <optional>
#include <span>
#include <string>

#include "tests/train/data/temp_folder.hpp"
#include "vocabpipe/world.hpp"

namespace vocabpipe::testing {

/// One name on all ranks, of a folder that rank 0 makes.
class SharedFolder {
public:
    explicit SharedFolder(Communicator& world) : world_(world) {
        if (world.rank() == 0) folder_.emplace();
        const std::string mine = folder_ ? *folder_ / "" : "";
        const auto all = world.all_gather(std::as_bytes(std::span(mine)));
        path_.assign(reinterpret_cast<const char*>(all.front().data()), all.front().size());
    }
    ~SharedFolder() {
        if (std::uncaught_exceptions() == 0) world_.barrier();
    }
    SharedFolder(const SharedFolder&) = delete;
    SharedFolder& operator=(const SharedFolder&) = delete;
    std::string operator/(const std::string& name) const { return path_ + name; }

private:
    Communicator& world_;
    std::optional<TempFolder> folder_;
    std::string path_;
};

}  // namespace vocabpipe::testing
