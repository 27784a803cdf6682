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
/// A matrix product of m x n outputs over k terms takes 2 m n (k + product_startup_terms) FLOPs at
/// dense_efficiency of the peak, and product_overhead_us: tensor cores idle while a tile starts and
/// ends, so products over few terms are less efficient than those over many.
struct DeviceSpec {
    std::string name;              ///< as in load_device()
    Figure gpus_per_node;          ///< GPUs of one machine, connected by links
    Figure peak_tflops;            ///< dense 16-bit matrix products; what MFU refers to
    Figure memory_gib;             ///< of one device
    Figure memory_gb_per_s;        ///< 1e9 bytes
    Figure link_gb_per_s;          ///< between two devices of a node, one direction
    Figure network_gb_per_s;       ///< between two devices of different nodes, one direction
    Figure link_latency_us;        ///< of a message inside a node
    Figure network_latency_us;     ///< of a message between nodes
    Figure dense_efficiency;       ///< the largest matrix products, of peak_tflops
    Figure product_startup_terms;  ///< terms that a product could add while its tiles start and end
    Figure product_overhead_us;    ///< fixed time of a product and the small kernels around it
    Figure layer_launch_us;        ///< least time of a layer's forward: the host launches kernels
    Figure fp8_speedup;            ///< of the products of layers with operands of 8 bits
    Figure attention_efficiency;   ///< causal attention, of peak_tflops, masked half not counted
    Figure flash_attention_2_efficiency;  ///< the same with the kernels of 2023
    Figure elementwise_efficiency;        ///< norms, activations, optimizer, of memory_gb_per_s
    Figure link_efficiency;               ///< collectives inside a node, of link_gb_per_s
    Figure message_efficiency;            ///< messages between two devices of a node, likewise
    Figure network_efficiency;            ///< what spans nodes, of network_gb_per_s
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
[[nodiscard]] const std::array<DeviceFigure, 24>& device_figures();

/// Names of the built-in devices.
[[nodiscard]] std::string known_devices();

/// A built-in device by name, or the hardware file of that name: JSON with "name" and one object
/// {"value", "basis", "source"} per figure. Throws UsageError for a name that is neither, with the
/// nearest known one; InputFileError naming file, key and remedy.
[[nodiscard]] DeviceSpec load_device(const std::string& name_or_path);

}  // namespace vocabpipe
