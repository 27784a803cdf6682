// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace vocabpipe {

/// Where a number of a hardware file comes from.
enum class Basis : uint8_t {
    published,  ///< a data sheet
    measured,   ///< runs, ours or others'
    assumed,
};
[[nodiscard]] std::string_view to_string(Basis basis);

/// A number and its source.
struct Figure {
    double value = 0;              ///< in the unit of the DeviceSpec member's name
    Basis basis = Basis::assumed;  ///< how well it is known
    std::string source;            ///< where the value was read, or why it was assumed
};

/// One accelerator and how machines of it are connected. An efficiency is the share of the peak
/// rate that a class of operation reaches in training.
///
/// A matrix product of m x n outputs over k terms takes 2 k (m n + product_idle_outputs) FLOPs at
/// dense_efficiency of the peak: its last wave of tiles is seldom full, and no unit is busy while
/// it starts and ends. So small products are less efficient than large ones, by one rule for all.
struct DeviceSpec {
    std::string name;               ///< as in load_device()
    Figure gpus_per_node;           ///< GPUs of one machine, connected by links
    Figure peak_tflops;             ///< dense 16-bit matrix products; what MFU refers to
    Figure memory_gib;              ///< of one device
    Figure memory_gb_per_s;         ///< 1e9 bytes
    Figure link_gb_per_s;           ///< between two devices of a node, one direction
    Figure network_gb_per_s;        ///< between two devices of different nodes, one direction
    Figure link_latency_us;         ///< of a message inside a node
    Figure network_latency_us;      ///< of a message between nodes
    Figure dense_efficiency;        ///< the largest matrix products, of peak_tflops
    Figure product_idle_outputs;    ///< outputs that a product could have computed in its idle time
    Figure attention_efficiency;    ///< causal attention, of peak_tflops, masked half not counted
    Figure elementwise_efficiency;  ///< norms, activations, optimizer, of memory_gb_per_s
    Figure link_efficiency;         ///< long messages between two devices, of either link
    Figure network_efficiency;      ///< collectives that span nodes, of network_gb_per_s
    Figure softmax_bytes_per_logit;  ///< memory traffic of a sharded output layer besides products
    Figure whole_softmax_bytes_per_logit;  ///< of a whole one, which merges nothing
    Figure vocabulary_pass_overhead_us;    ///< fixed time of E, G, S and T each
    Figure overlap_efficiency;             ///< rate of F, B, I, W under collectives, of their own
    Figure reserve_gib;                    ///< per device, for memory that no plan counts
};

/// Every number of a DeviceSpec by its key in a hardware file, for readers and reports.
struct DeviceFigure {
    std::string_view key;        ///< in a hardware file
    Figure DeviceSpec::*figure;  ///< where it is kept
    bool may_be_zero;            ///< else it must be positive
    bool is_share;               ///< at most 1
};
[[nodiscard]] const std::array<DeviceFigure, 19>& device_figures();

/// Names of the built-in devices.
[[nodiscard]] std::string known_devices();

/// A built-in device by name, or the hardware file of that name: JSON with "name" and one object
/// {"value", "basis", "source"} per figure. Throws UsageError for a name that is neither, with the
/// nearest known one; InputFileError naming file, key and remedy.
[[nodiscard]] DeviceSpec load_device(const std::string& name_or_path);

}  // namespace vocabpipe
