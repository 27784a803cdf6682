// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/transport/modelled_link.hpp"

#include "src/runtime/transport/forwarding_transport.hpp"
#include "src/runtime/transport/reused_slots.hpp"
#include "src/runtime/wait.hpp"
#include "vocabpipe/error.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

namespace vocabpipe {

namespace {

class ModelledLink final : public ForwardingTransport {
public:
    ModelledLink(Transport& inner, const Link& link) : ForwardingTransport(inner), link_(link) {
        if (link.bytes_per_ns > 0) return;
        throw UsageError("modelled link: a rate of " + std::to_string(link.bytes_per_ns) +
                         " bytes per ns; must be above 0");
    }

    [[nodiscard]] Ticket start(const Transfer& transfer) override {
        const Ticket ticket = messages_.take_new();
        Message& message = messages_[ticket];
        Transfer stamp = transfer;  // precedes the message on the same channel
        if (transfer.what == Do::send) {
            message.stamp_ns = now_ns();
            stamp.send = std::as_bytes(std::span(&message.stamp_ns, 1));
        } else if (transfer.what == Do::receive) {
            message.bytes = static_cast<int64_t>(transfer.receive.size());
            message.receives = true;
            stamp.receive = std::as_writable_bytes(std::span(&message.stamp_ns, 1));
            underway_[{transfer.ranks[0], transfer.channel}].push_back(ticket);
        } else {
            message.transfer = inner().start(transfer);
            return ticket;
        }
        message.stamp = inner().start(stamp);
        message.transfer = inner().start(transfer);
        return ticket;
    }

    [[nodiscard]] bool test(Ticket ticket) override {
        Message& message = messages_[ticket];
        if (message.receives) {
            look_for_arrivals();
            if (!message.seen_ns || now_ns() < *message.seen_ns) return false;
        } else if (!arrived(message)) {
            return false;
        }
        messages_.give_back(ticket);
        return true;
    }

private:
    struct Message {
        int64_t stamp_ns = 0;  ///< when its sender started the message
        int64_t bytes = 0;
        bool receives = false;
        std::optional<Ticket> stamp;     ///< until it has arrived
        std::optional<Ticket> transfer;  ///< until it has arrived
        std::optional<int64_t> seen_ns;  ///< of a receive
    };

    /// Whether stamp and message have completed on the inner transport.
    bool arrived(Message& message) {
        for (std::optional<Ticket>* const part : {&message.stamp, &message.transfer}) {
            if (!part->has_value()) continue;
            if (!inner().test(**part)) return false;
            part->reset();
        }
        return true;
    }

    /// Newly arrived messages occupy the link in the order in which they were sent. Those of one
    /// sender and channel arrive in order.
    void look_for_arrivals() {
        std::vector<Ticket> fresh;
        for (auto& [from, queue] : underway_) {
            while (!queue.empty() && arrived(messages_[queue.front()])) {
                fresh.push_back(queue.front());
                queue.pop_front();
            }
        }
        std::stable_sort(fresh.begin(), fresh.end(), [this](Ticket a, Ticket b) {
            return messages_[a].stamp_ns < messages_[b].stamp_ns;
        });
        for (const Ticket ticket : fresh) {
            Message& message = messages_[ticket];
            const double bytes_ns = static_cast<double>(message.bytes) / link_.bytes_per_ns;
            free_at_ns_ = std::max(free_at_ns_, message.stamp_ns) + link_.piece_ns +
                          static_cast<int64_t>(bytes_ns);
            message.seen_ns = free_at_ns_ + link_.latency_ns;
        }
    }

    Link link_;
    int64_t free_at_ns_ = 0;
    ReusedSlots<Message> messages_;  ///< peers hold pointers to stamps
    std::map<std::pair<int, Channel>, std::deque<Ticket>> underway_;  ///< receives, by sender
};

}  // namespace

std::unique_ptr<Transport> make_modelled_link(Transport& inner, const Link& link) {
    return std::make_unique<ModelledLink>(inner, link);
}

}  // namespace vocabpipe
