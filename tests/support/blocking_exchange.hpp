// SPDX-License-Identifier: Apache-2.0
// What exchanges of a team have in common that wait for all of it.
#pragma once

#include "vocabpipe/tile_link.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace vocabpipe::testing {

/// Nothing moves before this member has released all it has; then the first wait moves everything.
class BlockingExchange : public TileLink::Exchange {
public:
    BlockingExchange(std::span<const TileLink::Outgoing> send,
                     std::span<const TileLink::Incoming> receive, std::string_view name)
        : send_(send.begin(), send.end()),
          receive_(receive.begin(), receive.end()),
          name_(name),
          released_(send.size(), 0) {}

    void release(int member, int pieces) final {
        int& released = released_.at(static_cast<size_t>(member));
        released = std::max(released, pieces);
    }
    [[nodiscard]] int wait(int member, int /*pieces*/) final {
        exchange();
        return static_cast<int>(receive_.at(static_cast<size_t>(member)).ends.size());
    }
    [[nodiscard]] bool test(int /*member*/, int /*pieces*/) final { return exchanged_; }
    void finish() final { exchange(); }

protected:
    /// Sends and receives all of it; returns when it is there.
    virtual void move_all() = 0;

    [[nodiscard]] const std::vector<TileLink::Outgoing>& send() const { return send_; }
    [[nodiscard]] const std::vector<TileLink::Incoming>& receive() const { return receive_; }
    [[nodiscard]] const std::string& name() const { return name_; }

private:
    void exchange() {
        if (exchanged_) return;
        for (size_t member = 0; member < released_.size(); ++member) {
            if (released_[member] != static_cast<int>(send_[member].ends.size())) {
                throw std::logic_error(name_ + ": not all is released");
            }
        }
        move_all();
        exchanged_ = true;
    }

    std::vector<TileLink::Outgoing> send_;
    std::vector<TileLink::Incoming> receive_;
    std::string name_;
    std::vector<int> released_;  ///< [member] pieces
    bool exchanged_ = false;
};

}  // namespace vocabpipe::testing
