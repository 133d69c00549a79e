"""Work that outgrows one machine: who carries blocks out, here or on a Ray cluster; files that grow by parts."""
