// SPDX-License-Identifier: Apache-2.0
// What looks at neighbours: padding by reflection, and normalization over neighbouring channels.
#ifndef KERNELS_GPU_LOOPS_IMAGE_LOOPS_H_
#define KERNELS_GPU_LOOPS_IMAGE_LOOPS_H_

#include "kernels/gpu/loops/loops.h"

namespace millrace::gpu {

template <typename T>
struct MirrorEach {
  MirrorParams p;
  MR_HD void operator()(int64_t i) const {
    int64_t rest = i, from = 0, stride = 1;
    for (int a = p.rank - 1; a >= 0; --a) {
      const int64_t n = p.dims[a], row = rest / p.padded[a];
      int64_t at = rest - row * p.padded[a] - p.before[a];
      if (at < 0) at = -at - 1 + p.skip;
      if (at >= n) at = 2 * n - 1 - p.skip - at;
      from += at * stride;
      stride *= n;
      rest = row;
    }
    static_cast<T*>(p.out)[i] = static_cast<const T*>(p.in)[from];
  }
};

template <typename Launcher>
Outcome RunMirrorPad(Queue queue, const MirrorParams& p) {
  return DispatchSize(p.size,
                      [&]<typename T>() { return Launcher(queue).ForEach(p.n, MirrorEach<T>{p}); });
}

// Along each axis an element was copied to at most three places; they are added up in row-major
// order.
template <typename T>
struct MirrorGradEach {
  MirrorParams p;
  MR_HD void operator()(int64_t i) const {
    int64_t places[kMaxAxes][3];
    int count[kMaxAxes], digit[kMaxAxes];
    int64_t rest = i, stride = 1;
    for (int a = p.rank - 1; a >= 0; --a) {
      const int64_t n = p.dims[a], row = rest / n, at = rest - row * n;
      const int64_t front = p.before[a] - 1 + p.skip - at;
      const int64_t back = p.before[a] + 2 * n - 1 - p.skip - at;
      count[a] = digit[a] = 0;
      if (front >= 0 && front < p.before[a]) places[a][count[a]++] = front * stride;
      places[a][count[a]++] = (p.before[a] + at) * stride;
      if (back >= p.before[a] + n && back < p.padded[a]) places[a][count[a]++] = back * stride;
      stride *= p.padded[a];
      rest = row;
    }
    ComputeType<T> sum = 0;
    for (int a = 0; a >= 0;) {
      int64_t from = 0;
      for (int k = 0; k < p.rank; ++k) from += places[k][digit[k]];
      sum += Widen(static_cast<const T*>(p.in)[from]);
      for (a = p.rank - 1; a >= 0 && ++digit[a] == count[a]; --a) digit[a] = 0;
    }
    static_cast<T*>(p.out)[i] = Narrow<T>(sum);
  }
};

template <typename Launcher>
Outcome RunMirrorPadGrad(Queue queue, const MirrorParams& p) {
  return Dispatch(FloatsAndInt64(), p.type,
                  [&]<typename T>() { return Launcher(queue).ForEach(p.n, MirrorGradEach<T>{p}); });
}

// The channels of a pixel that are neighbours of each other.
struct LrnWindow {
  int64_t depth, radius;
  float bias, alpha;
  MR_HD int64_t First(int64_t k) const { return k > radius ? k - radius : 0; }
  MR_HD int64_t Last(int64_t k) const { return depth - k > radius ? k + radius + 1 : depth; }
  template <typename T>
  MR_HD float Norm(const T* pixel, int64_t k) const {
    float sum = 0;
    for (int64_t j = First(k); j < Last(k); ++j) sum += Widen(pixel[j]) * Widen(pixel[j]);
    return bias + alpha * sum;
  }
};
inline LrnWindow MakeWindow(const LrnParams& p) { return {p.depth, p.radius, p.bias, p.alpha}; }

template <typename T>
struct LrnEach {
  LrnWindow window;
  const T* in;
  T* out;
  float beta;
  MR_HD void operator()(int64_t i) const {
    const int64_t k = i % window.depth;
    out[i] = Narrow<T>(Widen(in[i]) * std::pow(window.Norm(in + i - k, k), -beta));
  }
};

template <typename T>
struct LrnGradEach {
  LrnWindow window;
  const T *in, *out_image, *gradient;
  T* dx;
  float alpha, beta;
  MR_HD void operator()(int64_t i) const {
    const int64_t k = i % window.depth, pixel = i - k;
    float sum = 0;
    for (int64_t j = window.First(k); j < window.Last(k); ++j) {
      const float norm = window.Norm(in + pixel, j);
      float part = -2 * alpha * beta * Widen(out_image[pixel + j]) / norm * Widen(in[i]);
      if (k == j) part += std::pow(norm, -beta);
      sum += part * Widen(gradient[pixel + j]);
    }
    dx[i] = Narrow<T>(sum);
  }
};

template <typename Launcher>
Outcome RunLrn(Queue queue, const LrnParams& p) {
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    return Launcher(queue).ForEach(
        p.pixels * p.depth,
        LrnEach<T>{MakeWindow(p), static_cast<const T*>(p.in), static_cast<T*>(p.out), p.beta});
  });
}
template <typename Launcher>
Outcome RunLrnGrad(Queue queue, const LrnParams& p) {
  return Dispatch(Types<float, Half, BFloat16>(), p.type, [&]<typename T>() {
    return Launcher(queue).ForEach(
        p.pixels * p.depth,
        LrnGradEach<T>{MakeWindow(p), static_cast<const T*>(p.in),
                       static_cast<const T*>(p.out_image), static_cast<const T*>(p.gradient),
                       static_cast<T*>(p.out), p.alpha, p.beta});
  });
}

}  // namespace millrace::gpu

#endif  // KERNELS_GPU_LOOPS_IMAGE_LOOPS_H_
