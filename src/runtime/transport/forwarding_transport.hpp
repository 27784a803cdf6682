// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "src/runtime/transport/transport.hpp"

#include <string>
#include <vector>

namespace vocabpipe {

/// Forwards everything but transfers to another transport, which must outlive it: a base for
/// transports whose messages take other times, as ForwardingDevice is one for devices. Ranks are
/// not near one another, so nothing goes past it.
class ForwardingTransport : public Transport {
public:
    explicit ForwardingTransport(Transport& inner) : inner_(inner) {}

    [[nodiscard]] int rank() const override { return inner_.rank(); }
    [[nodiscard]] int size() const override { return inner_.size(); }
    void prepare(const std::vector<Route>& routes) override { inner_.prepare(routes); }
    void check_health() override { inner_.check_health(); }
    void cancel() noexcept override { inner_.cancel(); }
    void abort(const std::string& reason) noexcept override { inner_.abort(reason); }

protected:
    [[nodiscard]] Transport& inner() const { return inner_; }

private:
    Transport& inner_;
};

}  // namespace vocabpipe
