// SPDX-License-Identifier: Apache-2.0
#include "kernels/nn/onednn_conv.h"

#include <dnnl.h>

#include <array>
#include <string_view>
#include <type_traits>
#include <utility>

#include "base/errors.h"
#include "base/status_macros.h"

// Of the OpenMP run time that Debian's oneDNN is linked with.
extern "C" void omp_set_num_threads(int);

namespace millrace {
namespace {

// The number is a property of the calling thread. With one, oneDNN never enters a parallel
// region, and so never makes threads of its own nor waits at a barrier.
void ComputeInThisThread() {
  thread_local bool done = false;
  if (done) return;
  omp_set_num_threads(1);
  done = true;
}

Status ToStatus(dnnl_status_t status, const char* what) {
  if (status == dnnl_success) return OkStatus();
  if (status == dnnl_out_of_memory) {
    return errors::ResourceExhausted("oneDNN is out of memory in ", what);
  }
  return errors::Internal("oneDNN failed in ", what, " with status ", static_cast<int>(status));
}

// Owns a handle of the C interface.
template <typename T, auto kDestroy>
struct Deleter {
  void operator()(T* p) const { kDestroy(p); }
};
using PrimitiveDesc =
    std::unique_ptr<dnnl_primitive_desc, Deleter<dnnl_primitive_desc, dnnl_primitive_desc_destroy>>;
using Primitive = std::unique_ptr<dnnl_primitive, Deleter<dnnl_primitive, dnnl_primitive_destroy>>;
using Attr =
    std::unique_ptr<dnnl_primitive_attr, Deleter<dnnl_primitive_attr, dnnl_primitive_attr_destroy>>;
using Memory = std::unique_ptr<dnnl_memory, Deleter<dnnl_memory, dnnl_memory_destroy>>;
using Stream = std::unique_ptr<dnnl_stream, Deleter<dnnl_stream, dnnl_stream_destroy>>;

dnnl_engine_t CpuEngine() {
  static const dnnl_engine_t engine = [] {
    dnnl_engine_t made = nullptr;
    return dnnl_engine_create(&made, dnnl_cpu, 0) == dnnl_success ? made : nullptr;
  }();
  return engine;  // for the life of the process
}

// Calls a function that makes a handle through its first parameter.
template <typename Owner, typename F>
Owner Made(F&& make) {
  typename Owner::pointer raw = nullptr;
  return make(&raw) == dnnl_success ? Owner(raw) : Owner();
}

// What one thread executes with: handles without memory of their own. They are kept between
// executions because making them allocates.
struct Slot {
  Stream stream;
  std::array<Memory, 4> memory;  // images, filter, outputs, scratch
};

int64_t FloatsOf(const dnnl_memory_desc_t& desc) {
  return static_cast<int64_t>((dnnl_memory_desc_get_size(&desc) + 3) / 4);
}

// A primitive of one input and one output.
struct Reorder {
  dnnl_memory_desc_t from{}, to{};
  Primitive primitive;

  bool Make(const dnnl_memory_desc_t& from_desc, const dnnl_memory_desc_t& to_desc) {
    from = from_desc;
    to = to_desc;
    const auto pd = Made<PrimitiveDesc>([&](dnnl_primitive_desc_t* p) {
      return dnnl_reorder_primitive_desc_create(p, &from, CpuEngine(), &to, CpuEngine(), nullptr);
    });
    if (!pd) return false;
    primitive =
        Made<Primitive>([&](dnnl_primitive_t* p) { return dnnl_primitive_create(p, pd.get()); });
    return primitive != nullptr;
  }

  Status Run(const float* in, float* out) const {
    ComputeInThisThread();
    const auto make = [](const dnnl_memory_desc_t& desc, void* data) {
      return Made<Memory>(
          [&](dnnl_memory_t* m) { return dnnl_memory_create(m, &desc, CpuEngine(), data); });
    };
    const Memory src = make(from, const_cast<float*>(in)), dst = make(to, out);
    const auto stream = Made<Stream>([](dnnl_stream_t* s) {
      return dnnl_stream_create(s, CpuEngine(), dnnl_stream_default_flags);
    });
    if (!src || !dst || !stream) return ToStatus(dnnl_out_of_memory, "reorder");
    const dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, src.get()}, {DNNL_ARG_TO, dst.get()}};
    MR_RETURN_IF_ERROR(
        ToStatus(dnnl_primitive_execute(primitive.get(), stream.get(), 2, args), "reorder"));
    return ToStatus(dnnl_stream_wait(stream.get()), "reorder");
  }
};

// The padding behind the last element that a window needs to reach.
int64_t PadAfter(const WindowAxis& axis) {
  return (axis.output - 1) * axis.stride + (axis.size - 1) * axis.dilation + 1 - axis.input -
         axis.pad_before;
}

// The description of a pass in oneDNN's terms.
struct Description {
  dnnl_memory_desc_t images{}, outputs{}, any_filter{}, plain_filter{};
  dnnl_dims_t strides, dilates, before, after;

  bool Fill(const ConvGeometry& g) {
    const dnnl_dims_t in = {g.batch, g.channels, g.rows.input, g.cols.input};
    const dnnl_dims_t out = {g.batch, g.out_channels, g.rows.output, g.cols.output};
    const dnnl_dims_t grouped = {g.groups, g.group_outputs(), g.group_channels(), g.rows.size,
                                 g.cols.size};
    const int64_t column = g.group_channels() * g.out_channels;
    const dnnl_dims_t hwio = {g.group_outputs(), 1, g.out_channels, g.cols.size * column, column};
    // Without groups the first axis is left out.
    const int skip = g.groups > 1 ? 0 : 1;
    const WindowAxis* axes[] = {&g.rows, &g.cols};
    for (int i = 0; i < 2; ++i) {
      strides[i] = axes[i]->stride;
      dilates[i] = axes[i]->dilation - 1;
      before[i] = axes[i]->pad_before;
      after[i] = PadAfter(*axes[i]);
    }
    return dnnl_memory_desc_init_by_tag(&images, 4, in, dnnl_f32, dnnl_nhwc) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&outputs, 4, out, dnnl_f32, dnnl_nhwc) == dnnl_success &&
           dnnl_memory_desc_init_by_tag(&any_filter, 5 - skip, grouped + skip, dnnl_f32,
                                        dnnl_format_tag_any) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&plain_filter, 5 - skip, grouped + skip, dnnl_f32,
                                            hwio + skip) == dnnl_success;
  }

  PrimitiveDesc Forward(dnnl_primitive_attr_t attr) {
    dnnl_convolution_desc_t op;
    if (dnnl_dilated_convolution_forward_desc_init(
            &op, dnnl_forward_training, dnnl_convolution_direct, &images, &any_filter, nullptr,
            &outputs, strides, dilates, before, after) != dnnl_success) {
      return nullptr;
    }
    return FromOp(&op, attr, nullptr);
  }
  PrimitiveDesc BackwardInput(dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward) {
    dnnl_convolution_desc_t op;
    if (dnnl_dilated_convolution_backward_data_desc_init(&op, dnnl_convolution_direct, &images,
                                                         &any_filter, &outputs, strides, dilates,
                                                         before, after) != dnnl_success) {
      return nullptr;
    }
    return FromOp(&op, attr, forward);
  }
  PrimitiveDesc BackwardFilter(dnnl_primitive_attr_t attr, const_dnnl_primitive_desc_t forward) {
    dnnl_convolution_desc_t op;
    if (dnnl_dilated_convolution_backward_weights_desc_init(
            &op, dnnl_convolution_direct, &images, &any_filter, nullptr, &outputs, strides, dilates,
            before, after) != dnnl_success) {
      return nullptr;
    }
    return FromOp(&op, attr, forward);
  }

 private:
  static PrimitiveDesc FromOp(const dnnl_convolution_desc_t* op, dnnl_primitive_attr_t attr,
                              const_dnnl_primitive_desc_t forward) {
    return Made<PrimitiveDesc>([&](dnnl_primitive_desc_t* p) {
      return dnnl_primitive_desc_create(p, op, attr, CpuEngine(), forward);
    });
  }
};

// Reference code and oneDNN's own products over patches are slower than ours.
bool IsCompiled(const_dnnl_primitive_desc_t pd) {
  const char* name = nullptr;
  if (dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, &name) != dnnl_success) {
    return false;
  }
  const std::string_view text(name);
  return text.find("ref") == std::string_view::npos && text.find("gemm") == std::string_view::npos;
}

// Where the code of oneDNN 2.6 writes behind the scratch memory that it asks for: strides over
// images under a filter of one element are taken out by a copy, of whole blocks of channels.
bool WritesBehindScratch(const ConvGeometry& g) {
  return g.rows.size == 1 && g.cols.size == 1 && (g.rows.stride > 1 || g.cols.stride > 1) &&
         g.group_channels() % 16 != 0;
}

}  // namespace

struct OneDnnConv::Impl {
  ConvPass pass;
  std::array<dnnl_memory_desc_t, 4> desc;  // images, filter, outputs, scratch
  Primitive primitive;
  Reorder pack, unpack;

  mutable Mutex mu;
  mutable std::vector<std::unique_ptr<Slot>> slots ABSL_GUARDED_BY(mu);

  std::unique_ptr<Slot> TakeSlot() const {
    {
      MutexLock lock(&mu);
      if (!slots.empty()) {
        std::unique_ptr<Slot> slot = std::move(slots.back());
        slots.pop_back();
        return slot;
      }
    }
    auto slot = std::make_unique<Slot>();
    slot->stream = Made<Stream>([](dnnl_stream_t* s) {
      return dnnl_stream_create(s, CpuEngine(), dnnl_stream_default_flags);
    });
    bool made = slot->stream != nullptr;
    for (std::size_t i = 0; i < desc.size(); ++i) {
      slot->memory[i] = Made<Memory>([&](dnnl_memory_t* m) {
        return dnnl_memory_create(m, &desc[i], CpuEngine(), DNNL_MEMORY_NONE);
      });
      made = made && slot->memory[i] != nullptr;
    }
    return made ? std::move(slot) : nullptr;
  }
  void ReturnSlot(std::unique_ptr<Slot> slot) const {
    MutexLock lock(&mu);
    slots.push_back(std::move(slot));
  }
};

OneDnnConv::OneDnnConv(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
OneDnnConv::~OneDnnConv() = default;

std::unique_ptr<OneDnnConv> OneDnnConv::Create(ConvPass pass, const ConvGeometry& geometry) {
  ComputeInThisThread();
  Description d;
  if (CpuEngine() == nullptr || WritesBehindScratch(geometry) || !d.Fill(geometry)) return nullptr;
  const auto attr =
      Made<Attr>([](dnnl_primitive_attr_t* a) { return dnnl_primitive_attr_create(a); });
  // The library's own scratch memory would tie a primitive to the thread that made it.
  if (!attr || dnnl_primitive_attr_set_scratchpad_mode(attr.get(), dnnl_scratchpad_mode_user) !=
                   dnnl_success) {
    return nullptr;
  }
  PrimitiveDesc pd = d.Forward(attr.get());
  if (pd && pass == ConvPass::kInput) pd = d.BackwardInput(attr.get(), pd.get());
  if (pd && pass == ConvPass::kFilter) pd = d.BackwardFilter(attr.get(), pd.get());
  if (!pd || !IsCompiled(pd.get())) return nullptr;
  auto impl = std::make_unique<Impl>();
  impl->pass = pass;
  impl->primitive =
      Made<Primitive>([&](dnnl_primitive_t* p) { return dnnl_primitive_create(p, pd.get()); });
  const dnnl_memory_desc_t* filter = dnnl_primitive_desc_query_md(
      pd.get(), pass == ConvPass::kFilter ? dnnl_query_diff_weights_md : dnnl_query_weights_md, 0);
  const dnnl_memory_desc_t* scratch =
      dnnl_primitive_desc_query_md(pd.get(), dnnl_query_scratchpad_md, 0);
  if (!impl->primitive || filter == nullptr || scratch == nullptr) return nullptr;
  impl->desc = {d.images, *filter, d.outputs, *scratch};
  if (!(pass == ConvPass::kFilter ? impl->unpack.Make(*filter, d.plain_filter)
                                  : impl->pack.Make(d.plain_filter, *filter))) {
    return nullptr;
  }
  return std::unique_ptr<OneDnnConv>(new OneDnnConv(std::move(impl)));
}

int64_t OneDnnConv::packed_filter_size() const { return FloatsOf(impl_->desc[1]); }
int64_t OneDnnConv::scratch_size() const { return FloatsOf(impl_->desc[3]); }

bool OneDnnConv::PacksLike(const OneDnnConv& other) const {
  return dnnl_memory_desc_equal(&impl_->desc[1], &other.impl_->desc[1]) != 0;
}

Status OneDnnConv::PackFilter(const float* filter, float* packed) const {
  return impl_->pack.Run(filter, packed);
}
Status OneDnnConv::UnpackFilter(const float* packed, float* filter) const {
  return impl_->unpack.Run(packed, filter);
}

Status OneDnnConv::Execute(float* images, float* packed_filter, float* outputs,
                           float* scratch) const {
  ComputeInThisThread();
  std::unique_ptr<Slot> slot = impl_->TakeSlot();
  if (!slot) return ToStatus(dnnl_out_of_memory, "convolution");
  void* const data[] = {images, packed_filter, outputs, scratch};
  for (int i = 0; i < 4; ++i) {
    MR_RETURN_IF_ERROR(
        ToStatus(dnnl_memory_set_data_handle(slot->memory[i].get(), data[i]), "convolution"));
  }
  static constexpr int kNames[][3] = {
      {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST},
      {DNNL_ARG_DIFF_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DIFF_DST},
      {DNNL_ARG_SRC, DNNL_ARG_DIFF_WEIGHTS, DNNL_ARG_DIFF_DST},
  };
  const int* names = kNames[static_cast<int>(impl_->pass)];
  const dnnl_exec_arg_t args[] = {{names[0], slot->memory[0].get()},
                                  {names[1], slot->memory[1].get()},
                                  {names[2], slot->memory[2].get()},
                                  {DNNL_ARG_SCRATCHPAD, slot->memory[3].get()}};
  Status status = ToStatus(
      dnnl_primitive_execute(impl_->primitive.get(), slot->stream.get(), 4, args), "convolution");
  impl_->ReturnSlot(std::move(slot));
  return status;
}

std::shared_ptr<const OneDnnConv> OneDnnConvCache::Get(const ConvGeometry& geometry) const {
  MutexLock lock(&mu_);  // two steps that meet a geometry first wait for one compilation
  for (const Entry& entry : entries_) {
    if (entry.geometry == geometry) return entry.conv;
  }
  if (entries_.size() == kMost) entries_.erase(entries_.begin());
  entries_.push_back({geometry, OneDnnConv::Create(pass_, geometry)});
  return entries_.back().conv;
}

}  // namespace millrace
