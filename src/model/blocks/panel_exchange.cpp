// SPDX-License-Identifier: Apache-2.0
#include "src/model/blocks/panel_exchange.hpp"

#include <algorithm>

namespace vocabpipe {

int panels_of(int64_t heads, int wanted) {
    auto panels = static_cast<int>(std::clamp<int64_t>(wanted, 1, heads));
    while (heads % panels != 0) --panels;
    return panels;
}

PanelExchange::PanelExchange(TileLink& link, Bytes memory)
    : link_(link),
      memory_(memory),
      out_(static_cast<size_t>(link.size())),
      in_(static_cast<size_t>(link.size())) {}

void PanelExchange::Pieces::add(const std::byte* memory, ConstTensor panel) {
    begins.push_back(static_cast<const std::byte*>(panel.data) - memory);
    ends.push_back(begins.back() + panel.bytes());
}

void PanelExchange::send(int member, ConstTensor panel) {
    out_[static_cast<size_t>(member)].add(memory_.data(), panel);
}

void PanelExchange::receive(int member, Tensor panel) {
    in_[static_cast<size_t>(member)].add(memory_.data(), panel);
}

void PanelExchange::start(std::string_view what) {
    std::vector<TileLink::Outgoing> send;
    std::vector<TileLink::Incoming> receive;
    for (const Pieces& out : out_) send.push_back({memory_, out.ends, out.begins});
    for (const Pieces& in : in_) receive.push_back({memory_, in.ends, in.begins});
    operation_ = link_.all_to_all(send, receive, {.what = what}, TileLink::Order::by_piece);
}

void PanelExchange::release(int panels) {
    for (int i = 0; i < link_.size(); ++i) operation_->release(link_.to(i), panels);
}

void PanelExchange::wait(int panels) {
    for (int i = 0; i < link_.size(); ++i) (void)operation_->wait(link_.from(i), panels);
}

}  // namespace vocabpipe
