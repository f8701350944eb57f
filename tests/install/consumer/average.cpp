// average.cpp - the same in C++17, with the library's objects in smart pointers.
#include <trireme/comm.h>

#include <cstdio>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

namespace
{
void check(tri_status status)
{
    if (status < 0)
        throw std::runtime_error(tri_last_error());
}

struct group_release {
    void operator()(tri_group *group) const
    {
        tri_group_unref(group);
    }
};
} // namespace

int main()
try {
    tri_group_options options = {};
    tri_group *made = nullptr;
    tri_work *work = nullptr;
    std::vector<double> x(1000), y(1000);

    options.timeout_ms = 20000;
    check(tri_group_create(nullptr, 0, 1, &options, &made));
    std::unique_ptr<tri_group, group_release> group(made);
    std::iota(x.begin(), x.end(), 1.0);
    check(tri_all_reduce(group.get(), x.data(), y.data(), x.size(), TRI_DTYPE_F64, TRI_REDOP_SUM,
                         &work));
    check(tri_work_wait(work, 0));
    tri_work_destroy(work);
    std::printf("average of %d on rank %d\n", tri_group_size(group.get()),
                tri_group_rank(group.get()));
    return x == y ? 0 : 1;
} catch (const std::exception &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
}
